//! Metrics that have the names of OpenTelemetry's semantic conventions and are sent to a receiver over OTLP. If no
//! receiver is configured, every function returns after one check. In `/metrics`, the metrics have other names.

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
/// Environment variable with the time between two exports, in milliseconds.
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
/// Status of a call that succeeded.
const OK: &str = "OK";

/// Upper bounds in seconds of the buckets for the duration of an inference, from the conventions.
const INFERENCE_SECONDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Upper bounds in seconds of the buckets for the time to the first chunk, from the conventions.
const FIRST_CHUNK_SECONDS: [f64; 16] =
    [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];
/// Upper bounds in seconds of the buckets for calls and for HTTP requests, from the conventions.
const CALL_SECONDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// The instruments of this process. They are set only if a receiver is configured.
static INSTRUMENTS: OnceLock<Instruments> = OnceLock::new();

struct Instruments {
    provider: SdkMeterProvider,
    tokens: [Counter<u64>; TOKEN_KINDS],
    inference: Histogram<f64>,
    first_chunk: Histogram<f64>,
    http_request: Histogram<f64>,
    client_call: Histogram<f64>,
    server_call: Histogram<f64>,
    /// Instruments for inferences, by operation, provider and model. The catalogue limits their number.
    inferences: RwLock<HashMap<Inferred, Arc<BoundInference>>>,
    /// Histograms for the durations of successful calls, by side and method.
    calls: RwLock<HashMap<(CallSide, &'static str), BoundHistogram<f64>>>,
}

/// Operation, provider and model of an inference.
type Inferred = (&'static str, Option<&'static str>, String);

/// Instruments whose attributes have been looked up. A look-up takes several times as long as a measurement, so it is
/// made only once.
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

/// Starts to send metrics if a receiver is configured. It must be called once in a process, inside a runtime.
pub fn start() -> Result<(), WrongSetting> {
    let Some((client, timeout)) = VARIABLES.client()? else { return Ok(()) };
    let exporter = MetricExporter::builder().with_http().with_timeout(timeout).with_http_client(client);
    let exporter = Exporter { to: exporter.build()?, runtime: Handle::current(), warned: Warned::default() };
    let every = milliseconds(INTERVAL)?.unwrap_or(EXPORT_EVERY);
    let reader = PeriodicReader::builder(exporter).with_interval(every).build();
    let provider = SdkMeterProvider::builder().with_resource(resource()).with_reader(reader).build();
    // If metrics were started before, nothing changes.
    let _ = INSTRUMENTS.set(Instruments::new(provider));
    Ok(())
}

/// Sends the last metrics before the process stops, within a limited time.
pub async fn flush() {
    let Some(Instruments { provider, .. }) = INSTRUMENTS.get() else { return };
    let (done, flushed) = oneshot::channel();
    // The flush runs on a thread of its own, so that the process need not wait longer than the limit.
    thread::spawn(move || {
        // Both errors are ignored: the exporter logs its failures itself, and the caller may have stopped waiting.
        let _ = provider.force_flush();
        let _ = done.send(());
    });
    if timeout(FLUSH_DEADLINE, flushed).await.is_err() {
        tracing::warn!("the receiver did not accept the last metrics in time");
    }
}

/// Exports metrics on the SDK's own thread. Timers and connections belong to the runtime.
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

/// The part of a request that an upstream handles.
pub struct Inference<'a> {
    pub operation: &'static str,
    /// Value of `gen_ai.provider.name`; `None` if no upstream has answered.
    pub provider: Option<&'static str>,
    /// The name of the model in the catalogue.
    pub model: &'a str,
    /// Class of the error; `None` if the inference succeeded.
    pub error: Option<&'static str>,
    /// Time from the first attempt to the last byte.
    pub took: Duration,
    /// Time until the first chunk of a stream.
    pub first_chunk: Option<Duration>,
    pub usage: Usage,
}

impl Inference<'_> {
    /// Records how long the inference took, and counts its tokens.
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

/// Times an incoming HTTP request until its answer has been read. Does nothing if no receiver is configured.
#[derive(Debug)]
pub struct HttpRequestTimer(Option<MeasuredRequest>);

#[derive(Debug)]
struct MeasuredRequest {
    began: Instant,
    attributes: Vec<KeyValue>,
}

impl HttpRequestTimer {
    /// Starts to measure a request. `route` is the pattern of its path, if it is known.
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

    /// Ends the measurement when the answer has been read or its client has left.
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

/// One side of a call between the services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallSide {
    Client,
    Server,
}

/// Measures how long a call between the services takes. Does nothing if no receiver is configured.
#[derive(Clone, Copy, Debug)]
pub struct CallTimer(Option<(CallSide, &'static str, Instant)>);

impl CallTimer {
    pub fn start(side: CallSide, method: &'static str) -> Self {
        Self(INSTRUMENTS.get().map(|_| (side, method, Instant::now())))
    }

    /// Records how long the call took. It ended with this status.
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
