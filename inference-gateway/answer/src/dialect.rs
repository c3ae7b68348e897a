//! Writes answers for clients of the Responses and Messages APIs, and passes on answers from upstreams that speak the
//! same API.

pub(crate) mod block;
pub(crate) mod messages;
pub(crate) mod passed;
pub(crate) mod responses;
pub(crate) mod turn;
