//! Parts that answers of every API have.

pub(crate) mod call_ids;
pub(crate) mod calls;
pub(crate) mod finish;
pub(crate) mod logprobs;
pub(crate) mod parts;
pub(crate) mod signed;
