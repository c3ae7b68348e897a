//! A receiver of spans and metrics over OTLP/HTTP. It acts like a collector.

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
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value},
    metrics::v1::{metric, number_data_point},
    resource::v1::Resource,
    trace::v1,
};
use prost::Message;
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, time::sleep};

use crate::harness::patience::{LOOK_EVERY, SERVER_PATIENCE};

const TRACES: &str = "/v1/traces";
const METRICS: &str = "/v1/metrics";

#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    /// `service.name` of the process that sent the span.
    pub service: String,
    pub name: String,
    /// Id of the trace, as hexadecimal digits.
    pub trace: String,
    pub id: String,
    /// Id of the parent span; empty if the span has no parent.
    pub parent: String,
    /// Kind of the span, without the prefix `SPAN_KIND_`: for example `SERVER`.
    pub kind: String,
    /// Whether the status of the span is an error.
    pub failed: bool,
    /// Times of the start and of the end, in nanoseconds since 1970.
    pub times: (u64, u64),
    attributes: Vec<(String, Value)>,
}

impl ReceivedSpan {
    /// Returns the value of an attribute, or null if the span does not have it. Fails if the span has it twice.
    pub fn get(&self, name: &str) -> Value {
        let mut values =
            self.attributes.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone());
        let value = values.next().unwrap_or_default();
        assert!(values.next().is_none(), "{name} is set twice: {self:?}");
        value
    }
}

/// A metric of a process with certain attributes, and its last value that was received.
#[derive(Clone, Debug)]
pub struct ReceivedMetric {
    /// `service.name` of the process that sent the metric.
    pub service: String,
    pub name: String,
    pub unit: String,
    pub attributes: Map<String, Value>,
    /// The sum of a counter, or the number of values in a histogram.
    pub count: u64,
}

/// A running receiver.
pub struct OtlpReceiver {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Export>>>,
}

/// Path and body of a request that the receiver got.
type Export = (String, Bytes);

impl OtlpReceiver {
    /// Starts a receiver that accepts everything.
    pub async fn start() -> Self {
        Self::answering(true).await
    }

    /// Starts a receiver that reads the requests and never answers them.
    pub async fn hanging() -> Self {
        Self::answering(false).await
    }

    async fn answering(answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<Export>>> = Arc::default();
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

    /// Returns environment variables that make a process send its spans here, and its metrics too, twice a second.
    pub fn env(&self) -> Vec<(&'static str, String)> {
        vec![
            ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", self.address)),
            ("OTEL_METRIC_EXPORT_INTERVAL", "500".into()),
        ]
    }

    /// Returns the bodies of all requests, in the order in which they arrived.
    pub fn requests(&self) -> Vec<Bytes> {
        self.requests.lock().unwrap().iter().map(|(_, body)| body.clone()).collect()
    }

    fn sent_to(&self, path: &str) -> Vec<Bytes> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|(to, _)| to == path).map(|(_, body)| body.clone()).collect()
    }

    /// Waits until the received metrics meet the condition. Returns, for each metric and each set of attributes, the
    /// value that was received last.
    pub async fn metrics(&self, complete: impl Fn(&[ReceivedMetric]) -> bool) -> Vec<ReceivedMetric> {
        let deadline = Instant::now() + SERVER_PATIENCE;
        loop {
            let mut last: Vec<ReceivedMetric> = Vec::new();
            for metric in self.sent_to(METRICS).iter().flat_map(metrics) {
                last.retain(|of| {
                    (&of.service, &of.name, &of.attributes)
                        != (&metric.service, &metric.name, &metric.attributes)
                });
                last.push(metric);
            }
            if complete(&last) {
                return last;
            }
            assert!(Instant::now() < deadline, "the metrics do not get complete: {last:#?}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns all spans that have arrived so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.sent_to(TRACES).iter().flat_map(spans).collect()
    }

    /// Waits until the spans of a trace meet the condition. Returns them.
    pub async fn trace(&self, id: &str, complete: impl Fn(&[ReceivedSpan]) -> bool) -> Vec<ReceivedSpan> {
        let deadline = Instant::now() + SERVER_PATIENCE;
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
    received: Arc<Mutex<Vec<Export>>>,
    request: Request<Incoming>,
    answers: bool,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let is_export = request.method() == Method::POST && [TRACES, METRICS].contains(&&*path);
    let body = request.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
    let mut response = Response::new(Full::default());
    if is_export {
        received.lock().unwrap().push((path, body));
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
        let service = service(process.resource);
        let spans = process.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.map(move |span| received(service.clone(), span)).collect::<Vec<_>>()
    };
    export.resource_spans.into_iter().flat_map(of_process).collect()
}

fn metrics(body: &Bytes) -> Vec<ReceivedMetric> {
    let export = ExportMetricsServiceRequest::decode(body.clone()).expect("it is an export of metrics");
    let mut received = Vec::new();
    for process in export.resource_metrics {
        let service = service(process.resource);
        for metric in process.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
            let points: Vec<(Vec<KeyValue>, u64)> = match metric.data {
                Some(metric::Data::Sum(sum)) => {
                    sum.data_points.into_iter().map(|of| (of.attributes, whole(of.value))).collect()
                }
                Some(metric::Data::Histogram(values)) => {
                    values.data_points.into_iter().map(|of| (of.attributes, of.count)).collect()
                }
                other => panic!("a metric of another kind: {other:?}"),
            };
            received.extend(points.into_iter().map(|(all, count)| ReceivedMetric {
                service: service.clone(),
                name: metric.name.clone(),
                unit: metric.unit.clone(),
                attributes: attributes(all).into_iter().collect(),
                count,
            }));
        }
    }
    received
}

fn whole(value: Option<number_data_point::Value>) -> u64 {
    match value {
        Some(number_data_point::Value::AsInt(number)) => u64::try_from(number).unwrap(),
        other => panic!("a count is no whole number: {other:?}"),
    }
}

fn service(resource: Option<Resource>) -> String {
    let resource = resource.map(|resource| attributes(resource.attributes)).unwrap_or_default();
    let name = resource.into_iter().find(|(name, _)| name == "service.name").map(|(_, value)| value);
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
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
    all.into_iter()
        .map(|KeyValue { key, value, .. }| (key, attribute(value.and_then(|any| any.value))))
        .collect()
}

fn attribute(value: Option<any_value::Value>) -> Value {
    match value {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::BoolValue(bool)) => json!(bool),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::DoubleValue(number)) => json!(number),
        Some(any_value::Value::ArrayValue(list)) => {
            list.values.into_iter().map(|any| attribute(any.value)).collect()
        }
        other => panic!("an attribute of another kind: {other:?}"),
    }
}
