//! How spans and metrics are sent to a receiver over OpenTelemetry's protocol (OTLP): the settings, the name of the
//! process, and the client. They are sent only if a receiver is configured.

use std::{
    env,
    fmt::Display,
    path::PathBuf,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use opentelemetry::KeyValue;
use opentelemetry_http::HttpError;
use opentelemetry_otlp::{ExporterBuildError, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TIMEOUT};
use opentelemetry_sdk::Resource;
use parking_lot::Mutex;
use shared_client::{ClientSettings, HttpClient, http_client};
use tokio::time::timeout;

/// Maximum time in which a process that stops sends its last spans and metrics.
pub(super) const FLUSH_DEADLINE: Duration = Duration::from_secs(2);
/// Default for the maximum time of a request to the receiver, including retries.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to connect to the receiver.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Maximum time that an idle connection to the receiver is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum size in bytes of an answer from the receiver.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Minimum time between two warnings about failed exports.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// Error about a setting of the export that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {reason}")]
pub struct WrongSetting {
    name: &'static str,
    reason: String,
}

impl WrongSetting {
    pub(super) fn new(name: &'static str, reason: impl Display) -> Self {
        Self { name, reason: reason.to_string() }
    }
}

impl From<ExporterBuildError> for WrongSetting {
    fn from(error: ExporterBuildError) -> Self {
        Self::new(OTEL_EXPORTER_OTLP_ENDPOINT, error)
    }
}

/// Names of the environment variables for spans, or for metrics.
pub(super) struct Variables {
    /// Variable with the exporter: `otlp`, or `none` if spans (or metrics) are not sent.
    pub(super) exporter: &'static str,
    /// Variable with the full address of the receiver, for spans only or for metrics only.
    pub(super) endpoint: &'static str,
    /// Variable with the maximum time of a request in milliseconds, for spans only or for metrics only.
    pub(super) timeout: &'static str,
}

impl Variables {
    /// Returns the client of the receiver and the maximum time of a request. Returns `None` if no receiver is
    /// configured.
    pub(super) fn client(&self) -> Result<Option<(ReceiverClient, Duration)>, WrongSetting> {
        let wanted = match setting(self.exporter).as_deref() {
            None | Some("otlp") => true,
            Some("none") => false,
            Some(_) => return Err(WrongSetting::new(self.exporter, "must be otlp or none")),
        };
        let receiver = setting(self.endpoint).or_else(|| setting(OTEL_EXPORTER_OTLP_ENDPOINT));
        if !wanted || receiver.is_none() {
            return Ok(None);
        }
        let timeout = match milliseconds(self.timeout)? {
            Some(timeout) => timeout,
            None => milliseconds(OTEL_EXPORTER_OTLP_TIMEOUT)?.unwrap_or(EXPORT_TIMEOUT),
        };
        let settings =
            ClientSettings { tls: None, connect_deadline: CONNECT_DEADLINE, idle: IDLE, idle_connections: 1 };
        Ok(Some((ReceiverClient { http: http_client(settings), timeout }, timeout)))
    }
}

/// Returns the value of an environment variable that is set and is not empty.
pub(super) fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the value of an environment variable as milliseconds, if it is set.
pub(super) fn milliseconds(name: &'static str) -> Result<Option<Duration>, WrongSetting> {
    let millis =
        setting(name).map(|value| value.parse().map_err(|e| WrongSetting::new(name, e))).transpose()?;
    Ok(millis.map(Duration::from_millis))
}

/// Describes the process to receivers: by `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` or, if these are not set,
/// by the program's name.
pub(super) fn resource() -> Resource {
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

#[derive(Debug)]
pub(super) struct ReceiverClient {
    http: HttpClient<Full<Bytes>>,
    timeout: Duration,
}

#[async_trait]
impl opentelemetry_http::HttpClient for ReceiverClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = async {
            let (head, body) = self.http.request(request.map(Full::new)).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        timeout(self.timeout, sent).await?
    }
}

/// Time of the last log line about a failed export. So there is only one line a minute while the receiver does not
/// work.
#[derive(Debug, Default)]
pub(super) struct Warned(Mutex<Option<Instant>>);

impl Warned {
    /// Returns whether a warning is due. If it is, counts it as logged.
    pub(super) fn is_due(&self) -> bool {
        let mut last = self.0.lock();
        let due = last.is_none_or(|last| last.elapsed() >= WARN_EVERY);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}
