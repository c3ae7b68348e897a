//! Conversions of calls and answers to and from protobuf messages.

mod answers;
mod calls;
mod course;
mod malformed;
mod usage;

pub use malformed::Malformed;
