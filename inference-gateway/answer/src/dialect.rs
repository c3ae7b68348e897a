//! Writes answers for clients of the Responses and Messages APIs, and passes on answers of upstreams that speak them
//! too.

pub(crate) mod block;
pub(crate) mod messages;
pub(crate) mod passed;
pub(crate) mod responses;
pub(crate) mod turn;
