//! Exports spans over OTLP: there is a limited queue, and a task that sends batches. If the receiver is slow or absent,
//! spans are lost, but requests are not affected.
//!
//! With the SDK's `BatchSpanProcessor`, `/metrics` could not count dropped spans: it logs only once that its queue is
//! full, and says how many spans it dropped only at the end.

use std::{sync::OnceLock, time::Duration};

use metrics::Counter;
use opentelemetry::{Context, trace::TracerProvider};
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, SpanExporter, WithExportConfig,
    WithHttpConfig,
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use super::tracer::TRACER;
use crate::otlp::{FLUSH_DEADLINE, Variables, Warned, WrongSetting, resource, setting};

/// Maximum number of spans that wait to be exported. Further spans are dropped. A span occupies one to two kilobytes.
const QUEUED_SPANS: usize = 2048;
/// Maximum number of spans in a request to the receiver.
const BATCH_SPANS: usize = 512;
/// Maximum time that a span waits until a batch is full.
const BATCH_AFTER: Duration = Duration::from_secs(1);
const VARIABLES: Variables = Variables {
    exporter: "OTEL_TRACES_EXPORTER",
    endpoint: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    timeout: OTEL_EXPORTER_OTLP_TRACES_TIMEOUT,
};

/// Samplers that have no argument.
const PLAIN_SAMPLERS: [&str; 4] =
    ["always_on", "always_off", "parentbased_always_on", "parentbased_always_off"];
/// Samplers whose argument is a ratio.
const RATIO_SAMPLERS: [&str; 2] = ["traceidratio", "parentbased_traceidratio"];

/// Queue of the task that exports spans, once that task has started.
static QUEUE: OnceLock<mpsc::Sender<ExportItem>> = OnceLock::new();

/// Starts to export spans if a receiver is configured. It must be called once in a process, inside a runtime.
pub fn start() -> Result<(), WrongSetting> {
    let Some((client, timeout)) = VARIABLES.client()? else { return Ok(()) };
    check_sampler()?;
    let exporter = SpanExporter::builder().with_http().with_timeout(timeout).with_http_client(client);
    let mut exporter = exporter.build()?;
    let resource = resource();
    exporter.set_resource(&resource);
    let (queue, items) = mpsc::channel(QUEUED_SPANS);
    let processor = SpanQueue { items: queue.clone(), dropped: dropped("queue_full") };
    let provider =
        SdkTracerProvider::builder().with_resource(resource).with_span_processor(processor).build();
    if QUEUE.set(queue).is_ok() && TRACER.set(provider.tracer("faregate")).is_ok() {
        tokio::spawn(export(exporter, items));
    }
    Ok(())
}

/// Sends the waiting spans before the process stops, within a limited time.
pub async fn flush() {
    let Some(queue) = QUEUE.get() else { return };
    let flushed = async {
        let (done, flushed) = oneshot::channel();
        if queue.send(ExportItem::Flush(done)).await.is_ok() {
            // An error means that the exporting task has ended.
            let _ = flushed.await;
        }
    };
    if timeout(FLUSH_DEADLINE, flushed).await.is_err() {
        tracing::warn!("the receiver did not accept the last spans in time");
    }
}

/// Checks the sampling settings. Without this check, the SDK would sample every trace if it cannot read a setting.
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

/// Returns the counter of spans that did not reach the receiver.
fn dropped(reason: &'static str) -> Counter {
    metrics::counter!("faregate_spans_dropped_total", "reason" => reason)
}

#[derive(Debug)]
enum ExportItem {
    Span(Box<SpanData>),
    /// Asks to send everything that was queued so far, and to confirm when that is done.
    Flush(oneshot::Sender<()>),
}

/// Puts spans that have ended into the queue.
#[derive(Debug)]
struct SpanQueue {
    items: mpsc::Sender<ExportItem>,
    dropped: Counter,
}

impl SpanProcessor for SpanQueue {
    fn on_start(&self, _span: &mut Span, _parent: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.items.try_send(ExportItem::Span(Box::new(span))).is_err() {
            self.dropped.increment(1);
        }
    }

    /// Does nothing, because [`flush`] waits without blocking a thread.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _timeout: Duration) -> OTelSdkResult {
        Ok(())
    }
}

/// Sends spans in batches until the process ends.
async fn export(exporter: SpanExporter, mut items: mpsc::Receiver<ExportItem>) {
    let failed = dropped("export_failed");
    let warned = Warned::default();
    while let Some((batch, flush)) = next_batch(&mut items).await {
        let spans = batch.len();
        if spans > 0
            && let Err(error) = exporter.export(batch).await
        {
            failed.increment(spans as u64);
            if warned.is_due() {
                tracing::warn!(%error, spans, "spans were not exported; they are dropped, and counted in faregate_spans_dropped_total");
            }
        }
        if let Some(flush) = flush {
            // The caller may have stopped waiting.
            let _ = flush.send(());
        }
    }
}

/// Returns the next batch, and the caller that waits for its export, if there is one.
async fn next_batch(
    items: &mut mpsc::Receiver<ExportItem>,
) -> Option<(Vec<SpanData>, Option<oneshot::Sender<()>>)> {
    let mut batch = Vec::new();
    let mut item = items.recv().await?;
    let deadline = Instant::now() + BATCH_AFTER;
    loop {
        match item {
            ExportItem::Span(span) => batch.push(*span),
            ExportItem::Flush(done) => return Some((batch, Some(done))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spans_beyond_the_queue_are_dropped_and_the_rest_goes_out_in_batches() {
        let (items, mut queued) = mpsc::channel(BATCH_SPANS + 1);
        let processor = SpanQueue { items, dropped: Counter::noop() };
        let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
        let tracer = provider.tracer("test");
        for _ in 0..BATCH_SPANS + 10 {
            drop(opentelemetry::trace::Tracer::start(&tracer, "span"));
        }
        let (first, _) = next_batch(&mut queued).await.unwrap();
        assert_eq!((first.len(), queued.len()), (BATCH_SPANS, 1));
    }
}
