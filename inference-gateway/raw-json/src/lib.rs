//! Reads and edits JSON as it is spelled. It builds no tree, and copies each text at most once.

mod members;
mod nesting;
mod raw_string;
mod splice;
mod strict;

pub use members::{ANY_NUMBER, Members, ParamPath, Value};
pub use nesting::{Nesting, is_deeper_than};
pub use raw_string::RawString;
pub use splice::Splice;
pub use strict::is_strict_object;

#[cfg(test)]
mod fuzz;
