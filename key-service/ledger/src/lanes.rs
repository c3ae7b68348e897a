//! Lanes: one per account and process.
//!
//! The caller that leads a lane decides the waiting calls, commits them together, and hands out the outcomes. A
//! conflict returns the current records, and the calls are decided again at once. A caller that has lost three times
//! takes the turn, a record that all spending guards.

pub(crate) mod change;
pub mod house;
pub(crate) mod lane;
mod leader;
mod steady;
mod trim;
pub(crate) mod turn;
