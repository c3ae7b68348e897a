//! Logs, spans and metrics of every program.

pub mod failure_log;
mod otlp;
pub mod standard_metrics;
pub mod telemetry;
pub mod traces;
