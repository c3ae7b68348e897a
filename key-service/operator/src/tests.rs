//! Measurements of pages. They assert nothing.

mod measure;
