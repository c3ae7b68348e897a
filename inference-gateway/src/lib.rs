//! Carries requests to a model and answers back, and meters both. It counts tokens, never money, and stores nothing but
//! a spool of undelivered captures.

mod client;
pub mod config;
mod families;
mod generation;
mod http;
pub mod parts;
pub mod server;
pub mod simulated;
pub mod sizes;
pub mod upstream_list;
mod workers;

pub use families::FAMILIES;
