//! A running installation: the operators' commands, and what the installation reports.

pub(crate) mod certificates;
pub(crate) mod commands;
pub(crate) mod doctor;
pub(crate) mod metrics;
pub(crate) mod reload;
pub(crate) mod takeover;
pub(crate) mod tls;
pub(crate) mod traces;
