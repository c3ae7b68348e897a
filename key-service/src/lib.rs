//! Decides who may spend and remembers what was spent.
//!
//! Arrows point one way: `grpc | http → service | management → domain`, and those two `→ store`.

pub mod credentials;
pub mod domain;
pub mod grpc;
pub mod service;
pub mod store;
pub mod sweeper;
