//! A call of a model: how it was asked and went, why it is refused, and how its rates stand.

pub mod generation;
pub mod rates;
pub mod refusal;
