//! Carries requests to a model and answers back, and meters both on the way. It counts in tokens, never in money, and
//! stores nothing but a spool of undelivered captures.

mod admission;
mod client;
pub mod config;
mod families;
mod generation;
mod hold;
mod http;
mod keys;
mod model_metrics;
pub mod models;
pub mod parts;
pub mod server;
pub mod simulated;
pub mod sizes;
mod upstream;
pub mod upstream_list;
mod workers;

pub use families::FAMILIES;
