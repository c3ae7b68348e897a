//! The tracer of this process, once it is set.

use std::sync::OnceLock;

use opentelemetry_sdk::trace::SdkTracer;

/// Makes spans, if a receiver is configured.
pub(super) static TRACER: OnceLock<SdkTracer> = OnceLock::new();
