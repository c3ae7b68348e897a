//! The key-service process: its configuration, the store it opens, its commands, and the servers and tasks it starts.
//!
//! Dependencies point in one direction only. Spending, deliveries, the management API, the dashboard and the command
//! line are separate crates, and they do not depend on this crate.

mod backup;
pub mod config;
pub mod doctor;
mod families;
pub mod first_run;
pub mod installation;
pub mod mail_options;
pub mod operator;
mod readiness;
pub mod server;
mod transfer;

pub use families::FAMILIES;
