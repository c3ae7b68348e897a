//! Spending: decides who may spend, what is held, and what is billed.
//!
//! Calls arrive over gRPC or inside the process. The store's ledger decides.

pub mod grpc;
pub mod held_money;
pub mod service;
pub mod sweeper;
