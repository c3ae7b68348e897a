//! Receivers of OpenTelemetry's protocol (OTLP): settings, the process's name, and the client. Spans and metrics are
//! sent if a receiver is configured.

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

/// How long a stopping process tries to send its last spans and metrics.
pub(super) const FLUSH_DEADLINE: Duration = Duration::from_secs(2);
/// Default bound on a request to the receiver, retries included.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for connecting to the receiver.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Maximum time that an idle connection to the receiver is kept.
const IDLE: Duration = Duration::from_secs(30);
/// Maximum size in bytes of the receiver's answer.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Minimum time between two warnings about exports.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// A setting of the export is unusable.
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

/// Environment variables for spans or for metrics.
pub(super) struct Variables {
    /// Names the exporter: `otlp`, or `none` to send nothing of this kind.
    pub(super) exporter: &'static str,
    /// Full address of the receiver, for this kind only.
    pub(super) endpoint: &'static str,
    /// Bound on a request in milliseconds, for this kind only.
    pub(super) timeout: &'static str,
}

impl Variables {
    /// Returns the client of the configured receiver, if any, and the timeout of a request.
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

/// Returns an environment variable that is set and not empty.
pub(super) fn setting(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns an environment variable in milliseconds, if set.
pub(super) fn milliseconds(name: &'static str) -> Result<Option<Duration>, WrongSetting> {
    let millis =
        setting(name).map(|value| value.parse().map_err(|e| WrongSetting::new(name, e))).transpose()?;
    Ok(millis.map(Duration::from_millis))
}

/// Describes the process to receivers, by `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, or else by the program's
/// name.
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

/// When a failed export was last logged, so that a receiver's outage logs one line a minute.
#[derive(Debug, Default)]
pub(super) struct Warned(Mutex<Option<Instant>>);

impl Warned {
    /// Returns whether a warning is due, and if so, counts it as given.
    pub(super) fn is_due(&self) -> bool {
        let mut last = self.0.lock();
        let due = last.is_none_or(|last| last.elapsed() >= WARN_EVERY);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}
