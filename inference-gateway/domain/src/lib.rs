//! Chat requests and answers, metering and routing: pure functions of bytes and numbers.

pub mod affinity;
pub mod answer;
pub mod chat;
pub mod embeddings;
pub mod messages;
pub mod metering;
pub mod request;
pub mod responses;
pub mod routing;
pub mod splice;
pub mod sse;
pub mod template;
pub mod upstream_error;
