//! A process has a lane for each account. In a lane, calls that change the account wait to be decided.
//!
//! One of the waiting callers leads the lane: it decides the waiting calls, commits them together, and hands out the
//! outcomes. If there is a conflict, the store returns the current records, and the calls are decided again at once. A
//! caller that has lost three times takes the turn. The turn is a record on which every commit of a lane has a guard.

pub(crate) mod change;
pub mod house;
pub(crate) mod lane;
mod leader;
mod steady;
mod trim;
pub(crate) mod turn;
