//! Decides who may spend and remembers what was spent.
//!
//! Arrows point one way: `grpc | http → service | management → domain`, and those two `→ store`.

pub mod credentials;
pub mod domain;
pub mod store;
