//! Chat requests and answers, metering and routing: pure functions of bytes and numbers.

pub(crate) mod affinity;
pub(crate) mod answer;
pub(crate) mod chat;
pub(crate) mod metering;
pub(crate) mod routing;
pub(crate) mod sse;
pub(crate) mod template;
pub(crate) mod upstream_error;
