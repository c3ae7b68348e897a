//! Logs, spans and metrics of every program.

pub mod failure_log;
pub mod log;
pub mod metrics;
mod otlp;
pub mod standard_metrics;
pub mod traces;
