//! Parts of answers that every API has.

pub(crate) mod call_ids;
pub(crate) mod calls;
pub(crate) mod finish;
pub(crate) mod logprobs;
pub(crate) mod loose;
pub(crate) mod nonsense;
pub(crate) mod oddity;
pub(crate) mod parts;
pub(crate) mod signed;
