//! The process of a key-service: its configuration, the store it opens, the commands that need no more than that, and
//! what it starts.
//!
//! Dependencies point one way. Spending, deliveries, the management API, the dashboard and the command line are crates
//! below, which know neither this one nor each other.

mod backup;
pub mod config;
pub mod doctor;
mod families;
pub mod first_run;
pub mod installation;
pub mod operator;
mod readiness;
pub mod server;
mod transfer;

pub use families::FAMILIES;
