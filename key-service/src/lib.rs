//! Library of the key-service: authorizes spending, and keeps accounts, keys and bills.
//!
//! Arrows point one way: `grpc | http | dashboard → service | management → domain`, and `service | management →
//! store`.

mod agents;
mod backup;
pub mod cli;
pub mod config;
mod credentials;
mod dashboard;
pub mod doctor;
mod families;
pub mod first_run;
mod grpc;
mod held_money;
mod http;
pub mod installation;
pub mod management;
pub mod operator;
mod readiness;
pub mod server;
mod service;
mod sweeper;
mod transfer;
mod webhooks;

pub use domain::{digest, pricing};
pub use families::FAMILIES;
pub(crate) use key_service_store::store;
