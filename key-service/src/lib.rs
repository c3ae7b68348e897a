//! Decides who may spend and remembers what was spent.
//!
//! Arrows point one way: `grpc | http → service | management → domain`, and those two `→ store`.

pub mod cli;
pub mod config;
pub mod credentials;
pub mod domain;
pub mod first_run;
pub mod grpc;
pub mod http;
pub mod management;
pub mod server;
pub mod service;
pub mod store;
pub mod sweeper;
