//! Measures how fast pages load. Nothing is asserted.

mod measure;
