//! Spending: who may spend, what is held, and what is billed.
//!
//! Calls come as messages of gRPC or in process; the ledger of the store decides.

pub mod grpc;
pub mod held_money;
pub mod service;
pub mod sweeper;
