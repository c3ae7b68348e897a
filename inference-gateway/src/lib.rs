//! Carries requests to a model and back, and meters them on the way. Thinks in tokens, never in money; keeps
//! nothing but a spool of captures that are not delivered yet.

mod client;
pub mod config;
mod domain;
mod generation;
mod hold;
mod http;
mod keys;
mod prompt_budget;
pub mod server;
mod shares;
pub mod sizes;
mod upstream;
mod workers;
