//! JSON read and edited as it is spelled: no value becomes a tree, and a text is copied once at most.

mod members;
mod raw_string;
mod splice;

pub use members::{ANY_NUMBER, Members, ParamPath, Value};
pub use raw_string::RawString;
pub use splice::Splice;
