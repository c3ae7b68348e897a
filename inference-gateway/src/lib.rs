//! Carries requests to a model and back, and meters them on the way. Thinks in tokens, never in money; keeps no state.

pub mod config;
pub mod domain;
pub mod generation;
pub mod http;
pub mod keys;
pub mod meter;
pub mod room;
pub mod server;
pub mod settler;
pub mod upstream;
