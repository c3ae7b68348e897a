//! Metrics under the names of OpenTelemetry's semantic conventions, sent to a receiver over OTLP. Without a receiver,
//! every function returns after one check. `/metrics` uses other names.

use std::{
    sync::{Arc, OnceLock},
    thread,
    time::Duration,
};

use axum_core::body::Body;
use foldhash::HashMap;
use http::{Method, Response};
use http_body_util::BodyExt;
use opentelemetry::{
    KeyValue,
    metrics::{BoundCounter, BoundHistogram, Counter, Histogram, Meter, MeterProvider},
};
use opentelemetry_otlp::{
    MetricExporter, OTEL_EXPORTER_OTLP_METRICS_ENDPOINT, OTEL_EXPORTER_OTLP_METRICS_TIMEOUT,
    WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    metrics::{
        PeriodicReader, SdkMeterProvider, Temporality, data::ResourceMetrics, exporter::PushMetricExporter,
    },
};
use parking_lot::RwLock;
use shared::tokens::{TOKEN_KINDS, Usage};
use tokio::{runtime::Handle, sync::oneshot, time::Instant, time::timeout};
use tokio_util::context::TokioContext;

use crate::{
    otlp::{FLUSH_DEADLINE, Variables, Warned, WrongSetting, milliseconds, resource},
    traces::{RPC_STATUS, known_method, rpc},
};

const VARIABLES: Variables = Variables {
    exporter: "OTEL_METRICS_EXPORTER",
    endpoint: OTEL_EXPORTER_OTLP_METRICS_ENDPOINT,
    timeout: OTEL_EXPORTER_OTLP_METRICS_TIMEOUT,
};
/// Environment variable for the time between two exports, in milliseconds.
const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// Default time between two exports.
const EXPORT_EVERY: Duration = Duration::from_mins(1);

/// Counters of tokens, in the order of [`Usage::by_kind`].
const USAGE: [&str; TOKEN_KINDS] = [
    "gen_ai.client.inference.usage.input_tokens",
    "gen_ai.client.inference.usage.output_tokens",
    "gen_ai.client.inference.usage.cache_read.input_tokens",
    "gen_ai.client.inference.usage.cache_write.input_tokens",
    "gen_ai.client.inference.usage.reasoning.output_tokens",
];
/// Status of a call that succeeds.
const OK: &str = "OK";

/// Bounds of the conventions' inference histogram, in seconds.
const INFERENCE_SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Bounds of the conventions' time-to-first-chunk histogram, in seconds.
const FIRST_CHUNK_SECONDS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Bounds of the conventions' histograms of calls and HTTP requests, in seconds.
const CALL_SECONDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Instruments of this process, if a receiver is configured.
static INSTRUMENTS: OnceLock<Instruments> = OnceLock::new();

struct Instruments {
    provider: SdkMeterProvider,
    tokens: [Counter<u64>; TOKEN_KINDS],
    inference: Histogram<f64>,
    first_chunk: Histogram<f64>,
    http_request: Histogram<f64>,
    client_call: Histogram<f64>,
    server_call: Histogram<f64>,
    /// Instruments for inferences, by operation, provider and model. Catalogues bound their number.
    inferences: RwLock<HashMap<Inferred, Arc<BoundInference>>>,
    /// Durations of successful calls, by side and method.
    calls: RwLock<HashMap<(CallSide, &'static str), BoundHistogram<f64>>>,
}

/// Operation, provider and model of an inference.
type Inferred = (&'static str, Option<&'static str>, String);

/// Instruments with their attributes looked up once. A look-up costs several times as much as a measurement.
struct BoundInference {
    tokens: [BoundCounter<u64>; TOKEN_KINDS],
    inference: BoundHistogram<f64>,
    first_chunk: BoundHistogram<f64>,
}

impl Instruments {
    fn new(provider: SdkMeterProvider) -> Self {
        let meter = provider.meter("faregate");
        Self {
            tokens: USAGE.map(|name| meter.u64_counter(name).with_unit("{token}").build()),
            inference: seconds(&meter, "gen_ai.client.inference.duration", &INFERENCE_SECONDS),
            first_chunk: seconds(&meter, "gen_ai.client.inference.time_to_first_chunk", &FIRST_CHUNK_SECONDS),
            http_request: seconds(&meter, "http.server.request.duration", &CALL_SECONDS),
            client_call: seconds(&meter, "rpc.client.call.duration", &CALL_SECONDS),
            server_call: seconds(&meter, "rpc.server.call.duration", &CALL_SECONDS),
            inferences: RwLock::default(),
            calls: RwLock::default(),
            provider,
        }
    }

    fn inference(&self, inferred: Inferred) -> Arc<BoundInference> {
        if let Some(bound) = self.inferences.read().get(&inferred) {
            return bound.clone();
        }
        let attributes = attributes(&inferred);
        let bound = Arc::new(BoundInference {
            tokens: self.tokens.each_ref().map(|counter| counter.bind(&attributes)),
            inference: self.inference.bind(&attributes),
            first_chunk: self.first_chunk.bind(&attributes),
        });
        self.inferences.write().entry(inferred).or_insert(bound).clone()
    }

    fn calls(&self, side: CallSide) -> &Histogram<f64> {
        match side {
            CallSide::Client => &self.client_call,
            CallSide::Server => &self.server_call,
        }
    }

    fn call(&self, side: CallSide, method: &'static str) -> BoundHistogram<f64> {
        if let Some(bound) = self.calls.read().get(&(side, method)) {
            return bound.clone();
        }
        let mut attributes = rpc(method);
        attributes.push(KeyValue::new(RPC_STATUS, OK));
        let bound = self.calls(side).bind(&attributes);
        self.calls.write().entry((side, method)).or_insert(bound).clone()
    }
}

fn attributes((operation, provider, model): &Inferred) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("gen_ai.operation.name", *operation),
        KeyValue::new("gen_ai.request.model", model.clone()),
    ];
    attributes.extend(provider.map(|provider| KeyValue::new("gen_ai.provider.name", provider)));
    attributes
}

fn seconds(meter: &Meter, name: &'static str, bounds: &[f64]) -> Histogram<f64> {
    meter.f64_histogram(name).with_unit("s").with_boundaries(bounds.to_vec()).build()
}

/// Starts sending metrics if a receiver is configured. Call it once per process, within a runtime.
pub fn start() -> Result<(), WrongSetting> {
    let Some((client, timeout)) = VARIABLES.client()? else { return Ok(()) };
    let exporter = MetricExporter::builder().with_http().with_timeout(timeout).with_http_client(client);
    let exporter = Exporter { to: exporter.build()?, runtime: Handle::current(), warned: Warned::default() };
    let every = milliseconds(INTERVAL)?.unwrap_or(EXPORT_EVERY);
    let reader = PeriodicReader::builder(exporter).with_interval(every).build();
    let provider = SdkMeterProvider::builder().with_resource(resource()).with_reader(reader).build();
    // A second start changes nothing.
    let _ = INSTRUMENTS.set(Instruments::new(provider));
    Ok(())
}

/// Sends the last metrics within a bounded time, before the process stops.
pub async fn flush() {
    let Some(Instruments { provider, .. }) = INSTRUMENTS.get() else { return };
    let (done, flushed) = oneshot::channel();
    // Runs on a separate thread, so that the process does not wait beyond the bound.
    thread::spawn(move || {
        // The exporter has logged any failure, and nobody may be waiting for the result.
        let _ = provider.force_flush();
        let _ = done.send(());
    });
    if timeout(FLUSH_DEADLINE, flushed).await.is_err() {
        tracing::warn!("the receiver did not accept the last metrics in time");
    }
}

/// Exports on the SDK's own thread, with the runtime's timers and connections.
struct Exporter {
    to: MetricExporter,
    runtime: Handle,
    warned: Warned,
}

impl PushMetricExporter for Exporter {
    async fn export(&self, metrics: &ResourceMetrics) -> OTelSdkResult {
        let exported = TokioContext::new(self.to.export(metrics), self.runtime.clone()).await;
        if let Err(error) = &exported
            && self.warned.is_due()
        {
            tracing::warn!(%error, "metrics were not exported; the next export includes them");
        }
        exported
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.to.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.to.shutdown_with_timeout(timeout)
    }

    fn temporality(&self) -> Temporality {
        self.to.temporality()
    }
}

/// The upstream's part of a request.
pub struct Inference<'a> {
    pub operation: &'static str,
    /// Value of `gen_ai.provider.name`, if an upstream has answered.
    pub provider: Option<&'static str>,
    /// The model's name in the catalogue.
    pub model: &'a str,
    /// Class of the error, if the inference failed.
    pub error: Option<&'static str>,
    /// Time from the first attempt to the last byte.
    pub took: Duration,
    /// Time to a stream's first chunk.
    pub first_chunk: Option<Duration>,
    pub usage: Usage,
}

impl Inference<'_> {
    /// Records the durations and counts the tokens.
    pub fn record(&self) {
        let Some(instruments) = INSTRUMENTS.get() else { return };
        let inferred = (self.operation, self.provider, self.model.to_owned());
        let took = self.took.as_secs_f64();
        let failed = self.error.map(|error| {
            let mut attributes = attributes(&inferred);
            attributes.push(KeyValue::new("error.type", error));
            attributes
        });
        let bound = instruments.inference(inferred);
        for (counter, tokens) in bound.tokens.iter().zip(self.usage.by_kind()) {
            if tokens > 0 {
                counter.add(tokens);
            }
        }
        if let Some(first_chunk) = self.first_chunk {
            bound.first_chunk.record(first_chunk.as_secs_f64());
        }
        match failed {
            None => bound.inference.record(took),
            Some(attributes) => instruments.inference.record(took, &attributes),
        }
    }
}

/// Times an incoming HTTP request until its answer has been read. Does nothing without a receiver.
#[derive(Debug)]
pub struct HttpRequestTimer(Option<MeasuredRequest>);

#[derive(Debug)]
struct MeasuredRequest {
    began: Instant,
    attributes: Vec<KeyValue>,
}

impl HttpRequestTimer {
    /// Starts timing a request. `route` is its path's pattern, if known.
    pub fn start(method: &Method, over_tls: bool, route: Option<&str>) -> Self {
        Self(INSTRUMENTS.get().map(|_| {
            let mut attributes = vec![
                KeyValue::new("http.request.method", known_method(method)),
                KeyValue::new("url.scheme", if over_tls { "https" } else { "http" }),
            ];
            attributes.extend(route.map(|route| KeyValue::new("http.route", route.to_owned())));
            MeasuredRequest { began: Instant::now(), attributes }
        }))
    }

    /// Measures until the answer has been read or its client leaves.
    pub fn answered(self, response: Response<Body>) -> Response<Body> {
        let Some(mut request) = self.0 else { return response };
        let status = response.status();
        request.attributes.push(KeyValue::new("http.response.status_code", i64::from(status.as_u16())));
        if status.is_server_error() {
            request.attributes.push(KeyValue::new("error.type", status.as_str().to_owned()));
        }
        response.map(|body| {
            Body::new(body.map_err(move |error| {
                let _measured = &request;
                error
            }))
        })
    }
}

impl Drop for MeasuredRequest {
    fn drop(&mut self) {
        if let Some(instruments) = INSTRUMENTS.get() {
            instruments.http_request.record(self.began.elapsed().as_secs_f64(), &self.attributes);
        }
    }
}

/// Side of a call between the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallSide {
    Client,
    Server,
}

/// Times a call between the services. Does nothing without a receiver.
#[derive(Clone, Copy, Debug)]
pub struct CallTimer(Option<(CallSide, &'static str, Instant)>);

impl CallTimer {
    pub fn start(side: CallSide, method: &'static str) -> Self {
        Self(INSTRUMENTS.get().map(|_| (side, method, Instant::now())))
    }

    /// Records the duration of the call, which ended with this status.
    pub fn stop(self, status: &'static str, failed: bool) {
        let (Some((side, method, began)), Some(instruments)) = (self.0, INSTRUMENTS.get()) else { return };
        let took = began.elapsed().as_secs_f64();
        if status == OK {
            return instruments.call(side, method).record(took);
        }
        let mut attributes = rpc(method);
        attributes.push(KeyValue::new(RPC_STATUS, status));
        if failed {
            attributes.push(KeyValue::new("error.type", status));
        }
        instruments.calls(side).record(took, &attributes);
    }
}
