//! A receiver of spans over OTLP/HTTP, as a collector is one.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Collected, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value},
    trace::v1,
};
use prost::Message;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::sleep};

use super::{LOOK_EVERY, PATIENCE};

/// A span as received.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    /// `service.name` of the process.
    pub service: String,
    /// Name of the span.
    pub name: String,
    /// Ids in hexadecimal digits: of the trace, of the span, and of the span above, empty for the first.
    pub trace: String,
    /// Id of the span.
    pub id: String,
    /// Id of the span above.
    pub parent: String,
    /// Kind of the span, as in `SPAN_KIND_SERVER` without its prefix.
    pub kind: String,
    /// Returns whether the status is an error.
    pub failed: bool,
    /// Begin and end in nanoseconds since 1970.
    pub times: (u64, u64),
    attributes: Vec<(String, Value)>,
}

impl ReceivedSpan {
    /// Value of an attribute; null if missing. An attribute is never set twice.
    pub fn get(&self, name: &str) -> Value {
        let mut values =
            self.attributes.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone());
        let value = values.next().unwrap_or_default();
        assert!(values.next().is_none(), "{name} is set twice: {self:?}");
        value
    }
}

/// A running receiver.
pub struct SpanReceiver {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Bytes>>>,
}

impl SpanReceiver {
    /// Starts a receiver that takes everything.
    pub async fn start() -> Self {
        Self::answering(true).await
    }

    /// Starts a receiver that reads requests and never answers.
    pub async fn hanging() -> Self {
        Self::answering(false).await
    }

    async fn answering(answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Bytes>>> = Arc::default();
        let received = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let received = received.clone();
                let service = service_fn(move |request| take(received.clone(), request, answers));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, requests }
    }

    /// Environment of a process that sends its spans here.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        vec![("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.address))]
    }

    /// The requests as they came.
    pub fn requests(&self) -> Vec<Bytes> {
        self.requests.lock().unwrap().clone()
    }

    /// All spans that have arrived.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.requests().iter().flat_map(spans).collect()
    }

    /// Waits until spans of a trace meet the condition, and returns these spans.
    pub async fn trace(&self, id: &str, complete: impl Fn(&[ReceivedSpan]) -> bool) -> Vec<ReceivedSpan> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let spans: Vec<_> = self.spans().into_iter().filter(|span| span.trace == id).collect();
            if complete(&spans) {
                return spans;
            }
            assert!(Instant::now() < deadline, "the trace does not get complete: {spans:#?}");
            sleep(LOOK_EVERY).await;
        }
    }
}

async fn take(
    received: Arc<Mutex<Vec<Bytes>>>,
    request: Request<Incoming>,
    answers: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_export = request.method() == Method::POST && request.uri().path() == "/v1/traces";
    let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let mut response = Response::new(Full::default());
    if is_export {
        received.lock().unwrap().push(body);
    } else {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    if !answers {
        std::future::pending::<()>().await;
    }
    Ok(response)
}

fn spans(body: &Bytes) -> Vec<ReceivedSpan> {
    let export = ExportTraceServiceRequest::decode(body.clone()).expect("it is an export of spans");
    let of_process = |process: v1::ResourceSpans| {
        let resource = process.resource.map(|resource| attributes(resource.attributes)).unwrap_or_default();
        let service =
            resource.iter().find(|(name, _)| name == "service.name").map(|(_, value)| value.clone());
        let service = service.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default();
        let spans = process.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.map(move |span| received(service.clone(), span)).collect::<Vec<_>>()
    };
    export.resource_spans.into_iter().flat_map(of_process).collect()
}

fn received(service: String, span: v1::Span) -> ReceivedSpan {
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    ReceivedSpan {
        service,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        kind: span.kind().as_str_name().trim_start_matches("SPAN_KIND_").to_owned(),
        failed: span.status.as_ref().is_some_and(|status| status.code() == v1::status::StatusCode::Error),
        times: (span.start_time_unix_nano, span.end_time_unix_nano),
        attributes: attributes(span.attributes),
        name: span.name,
    }
}

fn attributes(all: Vec<KeyValue>) -> Vec<(String, Value)> {
    let value = |value: Option<any_value::Value>| match value {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::BoolValue(bool)) => json!(bool),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::DoubleValue(number)) => json!(number),
        other => panic!("an attribute of another kind: {other:?}"),
    };
    all.into_iter()
        .map(|KeyValue { key, value: any, .. }| (key, value(any.and_then(|any| any.value))))
        .collect()
}
