//! What requests cost: credit and statements, margins, and prices.

pub(crate) mod credit;
pub(crate) mod margin;
pub(crate) mod models;
