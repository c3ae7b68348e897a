//! The APIs of the gateway: the exact bytes that are sent, their descriptions, and clients that are widely used.

pub(crate) mod clients;
pub(crate) mod dialects;
pub(crate) mod doors;
pub(crate) mod openapi;
pub(crate) mod wire;
