//! Spans of requests, as OpenTelemetry defines them. They exist only if a receiver is configured. Otherwise, every
//! function returns after one check.

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

/// Header with the sender's span (W3C Trace Context).
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Name of the attribute that contains the status of a call between the services.
pub const RPC_STATUS: &str = "rpc.response.status_code";

/// Name of the attribute that contains the class of an error.
const ERROR_TYPE: &str = "error.type";

/// A span, or nothing. All copies belong to the same span, which ends when the last copy is dropped. If the trace is
/// not sampled, this only passes on the decision not to sample it.
#[derive(Clone, Debug, Default)]
pub struct Span(Option<Context>);

impl Span {
    /// Starts the span of an incoming HTTP request. The new span is a child of the sender's span, if the headers
    /// contain one. `route` is the pattern of the path, if it is known.
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

    /// Starts the span of an outgoing HTTP request.
    #[must_use]
    pub fn http_request(&self, method: &Method) -> Self {
        self.child(SpanKind::Client, || {
            let method = known_method(method);
            (method.into(), vec![KeyValue::new("http.request.method", method)])
        })
    }

    /// Starts the span of a call, as a child of the sender's span, which `traceparent` contains. If the sender's span
    /// is not sampled, there is no span.
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

    /// Returns the span in which the current future runs.
    pub fn current() -> Self {
        if TRACER.get().is_none() {
            return Self(None);
        }
        Self(Some(Context::current()).filter(Context::has_active_span))
    }

    /// Starts a child of this span. `describe` returns its name and its attributes. If the trace is not sampled,
    /// returns a copy of this span.
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

    /// Starts the span of an outgoing call between the services.
    #[must_use]
    pub fn call(&self, method: &'static str) -> Self {
        self.child(SpanKind::Client, || (method.into(), rpc(method)))
    }

    fn begin(tracer: &SdkTracer, builder: SpanBuilder, parent: &Context) -> Self {
        Self(Some(Context::new().with_span(tracer.build_with_context(builder, parent))))
    }

    /// Sets an attribute. The caller must ensure that the value is short, and that it contains no prompt, no completion
    /// and no credential.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if let Some(context) = self.sampled() {
            context.span().set_attribute(KeyValue::new(key, value));
        }
    }

    /// Marks the operation of the span as failed, and records the class of the error.
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

    /// Records the answer to an incoming request. A 5xx marks the span as failed. A 4xx does not, because the error is
    /// the client's. The span lasts until the answer has been read. If the answer breaks off early, the span is marked
    /// as failed.
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

    /// Returns whether the span will be exported.
    pub fn is_sampled(&self) -> bool {
        self.sampled().is_some()
    }

    /// Returns the header for an outgoing request. With it, the spans of the called server become children of this
    /// span, or the server learns that the trace is not sampled.
    pub fn traceparent(&self) -> Option<HeaderValue> {
        self.0.as_ref().and_then(|context| HeaderValue::try_from(written(context)).ok())
    }

    /// Returns the text with which a key-service makes its spans children of this span. The text is empty if there is
    /// no sampled span.
    pub fn sampled_traceparent(&self) -> String {
        self.sampled().map(written).unwrap_or_default()
    }

    /// Makes this the current span until the guard is dropped.
    pub fn enter(&self) -> Option<ContextGuard> {
        self.sampled().cloned().map(Context::attach)
    }

    /// Runs a future within the span: new spans become its children, and log lines contain its ids.
    pub fn around<F>(&self, future: F) -> Inside<F> {
        Inside { future, span: Self(self.sampled().cloned()) }
    }

    fn sampled(&self) -> Option<&Context> {
        self.0.as_ref().filter(|context| context.span().span_context().is_sampled())
    }
}

/// A future that runs within a span.
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

/// Returns the ids of the current trace and span as hexadecimal digits, if the span is sampled.
pub(super) fn current_ids() -> Option<(String, String)> {
    TRACER.get()?;
    Context::map_current(|context| {
        let span = context.span();
        let ids = span.span_context();
        ids.is_sampled().then(|| (ids.trace_id().to_string(), ids.span_id().to_string()))
    })
}

/// Returns the attributes that the span of a call between the services has.
pub(super) fn rpc(method: &'static str) -> Vec<KeyValue> {
    vec![KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method)]
}

/// Returns a method as the value of an attribute. All non-standard methods have the same value.
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

/// Reads the context from a `traceparent`. If that is malformed, the context is empty. `tracestate` is ignored, because
/// the client may write any text there.
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
