//! Library of the key-service: authorizes spending, and keeps accounts, keys and bills.
//!
//! Arrows point one way: `grpc | http | dashboard → service | management → domain`, and `service | management →
//! store`.

mod backup;
pub mod config;
pub mod doctor;
mod families;
pub mod first_run;
mod grpc;
mod held_money;
pub mod installation;
pub mod operator;
mod readiness;
pub mod server;
mod service;
mod sweeper;
mod transfer;
mod webhooks;

pub use families::FAMILIES;
