//! Spans of requests, as in OpenTelemetry. They exist only if a receiver is configured; otherwise every function
//! returns after one check.

mod export;
mod tracer;

use std::{
    borrow::Cow,
    pin::Pin,
    task::{self, Poll},
};

use axum_core::body::Body;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use opentelemetry::{
    Context, ContextGuard,
    propagation::{Extractor, TextMapPropagator},
    trace::{SpanBuilder, Status, TraceContextExt, Tracer},
};
use opentelemetry_sdk::{propagation::TraceContextPropagator, trace::SdkTracer};

pub use export::{flush, start};
pub use opentelemetry::{Array, KeyValue, StringValue, Value, trace::SpanKind};
use shared::text::shown_path;
use tracer::TRACER;

/// Header that names the sender's span (W3C Trace Context).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Attribute with the status of a call between the services.
pub const RPC_STATUS: &str = "rpc.response.status_code";

/// Attribute with the class of an error.
const ERROR_TYPE: &str = "error.type";

/// A span, or none. Copies share the span, which ends with the last copy. If the trace is not sampled, only that
/// decision is passed on.
#[derive(Clone, Debug, Default)]
pub struct Span(Option<Context>);

impl Span {
    /// Starts the span of an incoming HTTP request, as a child of the sender's span if the headers name one. `route` is
    /// the path's pattern, if known.
    pub fn of_request<B>(request: &Request<B>, route: Option<&str>) -> Self {
        let Some(tracer) = TRACER.get() else { return Self(None) };
        let parent = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok());
        let parent = parent.map_or_else(Context::new, sender);
        let builder = tracer.span_builder("HTTP").with_kind(SpanKind::Server);
        let span = Self::begin(tracer, builder, &parent);
        if let Some(context) = span.sampled() {
            let method = known_method(request.method());
            let name = route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
            context.span().update_name(name);
            span.set("http.request.method", method);
            span.set("url.path", shown_path(request.uri()));
            if let Some(route) = route {
                span.set("http.route", route.to_owned());
            }
        }
        span
    }

    /// Begins the span of an outgoing HTTP request.
    #[must_use]
    pub fn http_request(&self, method: &Method) -> Self {
        self.child(SpanKind::Client, || {
            let method = known_method(method);
            (method.into(), vec![KeyValue::new("http.request.method", method)])
        })
    }

    /// Starts the span of a call, as a child of the sender's span `traceparent`. If the sender's is not sampled, there
    /// is no span.
    pub fn of_call(traceparent: &str, method: &'static str) -> Self {
        if traceparent.is_empty() {
            return Self(None);
        }
        let Some(tracer) = TRACER.get() else { return Self(None) };
        let parent = sender(traceparent);
        if !parent.span().span_context().is_sampled() {
            return Self(None);
        }
        let builder = tracer.span_builder(method).with_kind(SpanKind::Server);
        Self::begin(tracer, builder.with_attributes(rpc(method)), &parent)
    }

    /// Returns the span of the running future.
    pub fn current() -> Self {
        if TRACER.get().is_none() {
            return Self(None);
        }
        Self(Some(Context::current()).filter(Context::has_active_span))
    }

    /// Starts a child span with this name and these attributes. If the trace is not sampled, returns a copy of this
    /// span.
    #[must_use]
    pub fn child(
        &self,
        kind: SpanKind,
        describe: impl FnOnce() -> (Cow<'static, str>, Vec<KeyValue>),
    ) -> Self {
        let (Some(tracer), Some(parent)) = (TRACER.get(), self.sampled()) else { return self.clone() };
        let (name, attributes) = describe();
        let builder = tracer.span_builder(name).with_kind(kind).with_attributes(attributes);
        Self::begin(tracer, builder, parent)
    }

    /// Begins the span of an outgoing call between the services.
    #[must_use]
    pub fn call(&self, method: &'static str) -> Self {
        self.child(SpanKind::Client, || (method.into(), rpc(method)))
    }

    fn begin(tracer: &SdkTracer, builder: SpanBuilder, parent: &Context) -> Self {
        Self(Some(Context::new().with_span(tracer.build_with_context(builder, parent))))
    }

    /// Sets an attribute. Values are bounded, and never contain a prompt, a completion or a credential.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if let Some(context) = self.sampled() {
            context.span().set_attribute(KeyValue::new(key, value));
        }
    }

    /// Marks the operation as failed, with the class of the error.
    pub fn fail(&self, error: impl Into<Value>) {
        if let Some(context) = self.sampled() {
            context.span().set_status(Status::error(""));
            context.span().set_attribute(KeyValue::new(ERROR_TYPE, error));
        }
    }

    /// Records the status of the answer to an outgoing request.
    pub fn received(&self, status: StatusCode) {
        self.set("http.response.status_code", i64::from(status.as_u16()));
        if self.is_sampled() && (status.is_client_error() || status.is_server_error()) {
            self.fail(status.as_str().to_owned());
        }
    }

    /// Records the answer to an incoming request: a 5xx is an error, a 4xx is the client's. The span lasts until the
    /// answer has been read, and an answer that breaks off is an error.
    pub fn answered(&self, response: Response<Body>) -> Response<Body> {
        if !self.is_sampled() {
            return response;
        }
        let status = response.status();
        self.set("http.response.status_code", i64::from(status.as_u16()));
        if status.is_server_error() {
            self.fail(status.as_str().to_owned());
        }
        let span = self.clone();
        let cut = move |error| {
            span.fail("cut");
            error
        };
        response.map(|body| Body::new(body.map_err(cut)))
    }

    /// Returns whether the span is exported.
    pub fn is_sampled(&self) -> bool {
        self.sampled().is_some()
    }

    /// Returns the header that makes the called server's spans children of this one, or says that the trace is not
    /// sampled.
    pub fn traceparent(&self) -> Option<HeaderValue> {
        self.0.as_ref().and_then(|context| HeaderValue::try_from(written(context)).ok())
    }

    /// Returns the text that makes a key-service's spans children of this one; empty without a sampled span.
    pub fn sampled_traceparent(&self) -> String {
        self.sampled().map(written).unwrap_or_default()
    }

    /// Makes the span current until the guard is dropped.
    pub fn enter(&self) -> Option<ContextGuard> {
        self.sampled().cloned().map(Context::attach)
    }

    /// Runs a future within the span, so that new spans are its children and log lines include it.
    pub fn around<F>(&self, future: F) -> Inside<F> {
        Inside { future, span: Self(self.sampled().cloned()) }
    }

    fn sampled(&self) -> Option<&Context> {
        self.0.as_ref().filter(|context| context.span().span_context().is_sampled())
    }
}

/// A future inside a span.
#[derive(Debug)]
pub struct Inside<F> {
    future: F,
    span: Span,
}

impl<F: Future + Unpin> Future for Inside<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<F::Output> {
        let _entered = self.span.enter();
        Pin::new(&mut self.future).poll(task)
    }
}

/// Returns the ids of the current trace and span as hexadecimal digits, if sampled.
pub(super) fn current_ids() -> Option<(String, String)> {
    TRACER.get()?;
    Context::map_current(|context| {
        let span = context.span();
        let ids = span.span_context();
        ids.is_sampled().then(|| (ids.trace_id().to_string(), ids.span_id().to_string()))
    })
}

/// Returns the attributes of a call between the services.
pub(super) fn rpc(method: &'static str) -> Vec<KeyValue> {
    vec![KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method)]
}

/// Returns a method as an attribute. All non-standard methods share one value.
pub(super) fn known_method(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    }
}

/// Reads the context in a `traceparent`; empty if malformed. `tracestate` is ignored, since the client chooses its
/// text.
fn sender(traceparent: &str) -> Context {
    const NAME: &str = "traceparent";
    struct Header<'a>(&'a str);
    impl Extractor for Header<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            (key == NAME).then_some(self.0)
        }
        fn keys(&self) -> Vec<&str> {
            vec![NAME]
        }
    }
    TraceContextPropagator::new().extract_with_context(&Context::new(), &Header(traceparent))
}

fn written(context: &Context) -> String {
    let span = context.span();
    let ids = span.span_context();
    format!("00-{}-{}-{:02x}", ids.trace_id(), ids.span_id(), u8::from(ids.is_sampled()))
}
