//! Prompts in the Responses and Messages APIs: their lengths, what will be answered, and how they are cached.

pub(crate) mod breakpoints;
pub(crate) mod plan;
pub(crate) mod prompt;
