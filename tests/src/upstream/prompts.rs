//! Prompts in the Responses and Messages APIs: their lengths, their planned answers, and their cache.

pub(crate) mod breakpoints;
pub(crate) mod plan;
pub(crate) mod prompt;
