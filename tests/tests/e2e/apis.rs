//! The gateway's APIs: their exact bytes, their descriptions, and clients in common use.

pub(crate) mod clients;
pub(crate) mod dialects;
pub(crate) mod doors;
pub(crate) mod openapi;
pub(crate) mod wire;
