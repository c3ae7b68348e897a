//! Money: credit and statements, margins, and models with their prices.

pub(crate) mod credit;
pub(crate) mod margin;
pub(crate) mod models;
