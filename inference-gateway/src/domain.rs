//! What a chat request is, and what its answer says: pure functions from bytes to bytes.

pub mod affinity;
pub mod answer;
pub mod chat;
pub mod complaint;
pub mod routing;
pub mod sse;
