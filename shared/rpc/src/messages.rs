//! Converts calls and answers to protobuf messages and back.

mod answers;
mod calls;
mod course;
mod malformed;
mod usage;

pub use malformed::Malformed;
