//! Lanes of accounts.
//!
//! Each account has a lane in a process. One caller leads: it decides the waiting calls, commits them together, and
//! hands out the outcomes. A conflict brings the records as they are now, and the calls are decided again at once. A
//! caller that has lost three times takes the turn, which is a record that all spending guards.

pub(crate) mod change;
pub mod house;
pub(crate) mod lane;
mod leader;
mod steady;
mod trim;
pub(crate) mod turn;
