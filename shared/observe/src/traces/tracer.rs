//! The tracer of this process, if it is set.

use std::sync::OnceLock;

use opentelemetry_sdk::trace::SdkTracer;

/// Makes spans. It is set only if a receiver is configured.
pub(super) static TRACER: OnceLock<SdkTracer> = OnceLock::new();
