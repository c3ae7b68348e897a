//! Export of spans over OTLP: a bounded queue, and one task that sends batches. A receiver that is slow or away costs spans,
//! never requests.

use std::{env, fmt::Display, path::PathBuf, sync::OnceLock, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use metrics::Counter;
use opentelemetry::{Context, KeyValue, trace::TracerProvider};
use opentelemetry_http::HttpError;
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TIMEOUT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use super::TRACER;
use crate::process::http_client::{ClientSettings, HttpClient, http_client};

/// Number of spans that wait for export; further spans are dropped. A span takes one to two kilobytes.
const QUEUED_SPANS: usize = 2048;
/// Largest number of spans in a request to the receiver.
const BATCH_SPANS: usize = 512;
/// Longest wait of a span for others of the same batch.
const BATCH_AFTER: Duration = Duration::from_secs(1);
/// Time for the last spans of a process that stops.
const FLUSH_DEADLINE: Duration = Duration::from_secs(2);
/// Longest time of a request to the receiver and of its repetitions, unless configured.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time to make a connection to the receiver.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Longest time that an idle connection to the receiver is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Largest answer of the receiver that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Shortest time between two warnings about exports.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// Samplers without an argument. Others take a ratio.
const PLAIN_SAMPLERS: [&str; 4] =
    ["always_on", "always_off", "parentbased_always_on", "parentbased_always_off"];
/// Samplers that take a ratio.
const RATIO_SAMPLERS: [&str; 2] = ["traceidratio", "parentbased_traceidratio"];

/// Queue of the task that exports, once started.
static QUEUE: OnceLock<mpsc::Sender<Item>> = OnceLock::new();

/// A setting of the export cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {reason}")]
pub struct WrongSetting {
    name: &'static str,
    reason: String,
}

impl WrongSetting {
    fn new(name: &'static str, reason: impl Display) -> Self {
        Self { name, reason: reason.to_string() }
    }
}

/// Begins to export spans if a receiver is configured; once a process, inside a runtime.
pub fn start() -> Result<(), WrongSetting> {
    if setting(OTEL_EXPORTER_OTLP_ENDPOINT).or_else(|| setting(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)).is_none()
    {
        return Ok(());
    }
    check_sampler()?;
    let timeout = match milliseconds(OTEL_EXPORTER_OTLP_TRACES_TIMEOUT)? {
        Some(timeout) => timeout,
        None => milliseconds(OTEL_EXPORTER_OTLP_TIMEOUT)?.unwrap_or(EXPORT_TIMEOUT),
    };
    let exporter = SpanExporter::builder().with_http().with_timeout(timeout);
    let exporter = exporter.with_http_client(Client::new(timeout)).build();
    let mut exporter = exporter.map_err(|e| WrongSetting::new(OTEL_EXPORTER_OTLP_ENDPOINT, e))?;
    let resource = resource();
    exporter.set_resource(&resource);
    let (queue, items) = mpsc::channel(QUEUED_SPANS);
    let processor = Queue { items: queue.clone(), dropped: dropped("queue_full") };
    let provider =
        SdkTracerProvider::builder().with_resource(resource).with_span_processor(processor).build();
    if QUEUE.set(queue).is_ok() && TRACER.set(provider.tracer("faregate")).is_ok() {
        tokio::spawn(export(exporter, items));
    }
    Ok(())
}

/// Sends the spans that wait, within a bound: the process is about to stop.
pub async fn flush() {
    let Some(queue) = QUEUE.get() else { return };
    let flushed = async {
        let (done, flushed) = oneshot::channel();
        if queue.send(Item::Flush(done)).await.is_ok() {
            // An error means that the task has ended.
            let _ = flushed.await;
        }
    };
    if timeout(FLUSH_DEADLINE, flushed).await.is_err() {
        tracing::warn!("the receiver did not take the last spans in time");
    }
}

/// Value of an environment variable that is set and not empty.
fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn milliseconds(name: &'static str) -> Result<Option<Duration>, WrongSetting> {
    let millis =
        setting(name).map(|value| value.parse().map_err(|e| WrongSetting::new(name, e))).transpose()?;
    Ok(millis.map(Duration::from_millis))
}

/// Checks the settings of sampling. The SDK samples every trace where it cannot read one.
fn check_sampler() -> Result<(), WrongSetting> {
    const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
    const RATIO: &str = "OTEL_TRACES_SAMPLER_ARG";
    let Some(sampler) = setting(SAMPLER) else { return Ok(()) };
    if PLAIN_SAMPLERS.contains(&sampler.as_str()) {
        return Ok(());
    }
    if !RATIO_SAMPLERS.contains(&sampler.as_str()) {
        let known = [&PLAIN_SAMPLERS[..], &RATIO_SAMPLERS[..]].concat().join(", ");
        return Err(WrongSetting::new(SAMPLER, format!("must be one of {known}")));
    }
    let ratio = setting(RATIO).and_then(|ratio| ratio.parse::<f64>().ok());
    match ratio.filter(|ratio| (0.0..=1.0).contains(ratio)) {
        Some(_) => Ok(()),
        None => Err(WrongSetting::new(RATIO, format!("must be a number from 0 to 1, for {sampler}"))),
    }
}

/// The process as receivers know it: by `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, or else by its program.
fn resource() -> Resource {
    let named =
        Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    let attributes = setting("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    if setting("OTEL_SERVICE_NAME").is_some() || attributes.contains("service.name=") {
        return named.build();
    }
    let program = env::current_exe().unwrap_or_else(|_| PathBuf::from("faregate"));
    let program = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    named.with_service_name(program).build()
}

/// Counter of spans that did not reach the receiver.
fn dropped(reason: &'static str) -> Counter {
    metrics::counter!("faregate_spans_dropped_total", "reason" => reason)
}

/// Item of the queue.
#[derive(Debug)]
enum Item {
    Span(Box<SpanData>),
    /// Request to send everything before, and to say so.
    Flush(oneshot::Sender<()>),
}

/// Way of ended spans into the queue.
#[derive(Debug)]
struct Queue {
    items: mpsc::Sender<Item>,
    dropped: Counter,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _span: &mut Span, _parent: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.items.try_send(Item::Span(Box::new(span))).is_err() {
            self.dropped.increment(1);
        }
    }

    /// Does nothing: [`flush`] waits without blocking a thread.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sends spans in batches for as long as the process runs.
async fn export(exporter: SpanExporter, mut items: mpsc::Receiver<Item>) {
    let failed = dropped("export_failed");
    let mut warned: Option<Instant> = None;
    while let Some((batch, flush)) = next_batch(&mut items).await {
        let spans = batch.len();
        if spans > 0
            && let Err(error) = exporter.export(batch).await
        {
            failed.increment(spans as u64);
            if warned.is_none_or(|warned| warned.elapsed() >= WARN_EVERY) {
                tracing::warn!(%error, spans, "spans were not exported; they are dropped, as the metric faregate_spans_dropped_total counts");
                warned = Some(Instant::now());
            }
        }
        if let Some(flush) = flush {
            // The caller may have given up.
            let _ = flush.send(());
        }
    }
}

/// The next batch, and the caller that waits for its export.
async fn next_batch(
    items: &mut mpsc::Receiver<Item>,
) -> Option<(Vec<SpanData>, Option<oneshot::Sender<()>>)> {
    let mut batch = Vec::new();
    let mut item = items.recv().await?;
    let deadline = Instant::now() + BATCH_AFTER;
    loop {
        match item {
            Item::Span(span) => batch.push(*span),
            Item::Flush(done) => return Some((batch, Some(done))),
        }
        if batch.len() == BATCH_SPANS {
            return Some((batch, None));
        }
        match timeout_at(deadline, items.recv()).await {
            Ok(Some(next)) => item = next,
            Ok(None) | Err(_) => return Some((batch, None)),
        }
    }
}

/// Client of the receiver.
#[derive(Debug)]
struct Client {
    http: HttpClient<Full<Bytes>>,
    timeout: Duration,
}

impl Client {
    fn new(timeout: Duration) -> Self {
        let settings =
            ClientSettings { tls: None, connect_deadline: CONNECT_DEADLINE, idle: IDLE, idle_connections: 1 };
        Self { http: http_client(settings), timeout }
    }
}

#[async_trait]
impl opentelemetry_http::HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = async {
            let (head, body) = self.http.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        timeout(self.timeout, sent).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spans_beyond_the_queue_are_dropped_and_the_rest_goes_out_in_batches() {
        let (items, mut queued) = mpsc::channel(BATCH_SPANS + 1);
        let processor = Queue { items, dropped: Counter::noop() };
        let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
        let tracer = provider.tracer("test");
        for _ in 0..BATCH_SPANS + 10 {
            drop(opentelemetry::trace::Tracer::start(&tracer, "span"));
        }
        let (first, _) = next_batch(&mut queued).await.unwrap();
        assert_eq!((first.len(), queued.len()), (BATCH_SPANS, 1));
    }
}
