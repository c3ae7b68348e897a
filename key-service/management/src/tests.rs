//! Tests and measurements of whole accounts.

mod bounds;
mod measure;
mod peppers;
mod sums;
mod top;
mod trimmed;
