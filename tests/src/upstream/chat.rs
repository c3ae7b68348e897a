//! The chat API of the scripted upstream.

pub(crate) mod plan;
pub(crate) mod render;
pub(crate) mod request;
pub(crate) mod streaming;
pub(crate) mod template;
