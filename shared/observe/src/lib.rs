//! Logs, spans and metrics, for every program.

pub mod failure_log;
pub mod log;
pub mod metrics;
mod otlp;
pub mod standard_metrics;
pub mod traces;
