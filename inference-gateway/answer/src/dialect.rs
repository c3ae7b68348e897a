//! Answers of the Responses and Messages APIs, as clients of each read them, and those that are passed on.

pub(crate) mod messages;
pub(crate) mod passed;
pub(crate) mod responses;
pub(crate) mod turn;
