//! Spending: who may spend, what is held, and what is billed.
//!
//! Calls come as gRPC messages or within the process. The ledger of the store decides.

pub mod grpc;
pub mod held_money;
pub mod service;
pub mod sweeper;
