//! How an upstream fails before its first byte, and what our client is told of it.

use std::error::Error as _;

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use serde_json::Value;
use shared::error::{ApiError, Code};

/// The largest error body that is read.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Characters of an upstream's message that a client is shown.
const MAX_MESSAGE_CHARS: usize = 1000;

/// An upstream did not answer with a 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens there. Another one may be tried.
    Unreachable(String),
    /// It hung up before an answer. Another one may be tried.
    HungUp(String),
    /// It has too much to do. Another one may be tried.
    Overloaded,
    /// It did not answer in time.
    Timeout,
    /// It refused the request itself.
    Refused(ApiError),
    /// It failed, answered nonsense, or refused our credential.
    Broken(String),
}

impl Failure {
    /// Whether the same request may succeed at another upstream.
    pub const fn elsewhere(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::HungUp(_) | Self::Overloaded => true,
            Self::Timeout | Self::Refused(_) | Self::Broken(_) => false,
        }
    }

    /// A name for metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::HungUp(_) => "hung_up",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Refused(_) => "refused",
            Self::Broken(_) => "broken",
        }
    }
}

/// What the client is told; what the operator needs to know is logged by the caller.
impl From<Failure> for ApiError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(_) => {
                Self::new(Code::UpstreamUnavailable, "The model cannot be reached at the moment.")
            }
            Failure::Overloaded => {
                Self::new(Code::UpstreamUnavailable, "The model is overloaded at the moment.")
            }
            Failure::Timeout => Self::new(Code::UpstreamTimeout, "The model did not answer in time."),
            Failure::Refused(error) => error,
            Failure::HungUp(_) | Failure::Broken(_) => {
                Self::new(Code::UpstreamError, "The model failed to answer.")
            }
        }
    }
}

pub(super) fn of_connection(error: &legacy::Error) -> Failure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    if error.is_connect() { Failure::Unreachable(text) } else { Failure::HungUp(text) }
}

/// Reads an error in any of the three shapes that servers use: nested, flat, or none.
pub(super) async fn of_response(response: Response<Incoming>, upstream_model: &str) -> Failure {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ERROR_BYTES).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let error = if value["error"].is_object() { &value["error"] } else { &value };
    let message = error["message"].as_str().or(value["error"].as_str()).unwrap_or_default();
    let kind = error["type"].as_str().unwrap_or_default();
    match status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
            Failure::Refused(refused(message, kind, upstream_model))
        }
        StatusCode::PAYLOAD_TOO_LARGE => {
            Failure::Refused(ApiError::new(Code::RequestTooLarge, "The request is too large for the model."))
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Failure::Overloaded,
        StatusCode::GATEWAY_TIMEOUT => Failure::Timeout,
        // Its message may quote the prompt, and is kept out of the log.
        _ => Failure::Broken(format!("status {status}, type \"{}\"", shorten(kind))),
    }
}

fn refused(message: &str, kind: &str, upstream_model: &str) -> ApiError {
    let lower = message.to_lowercase();
    let too_long = kind == "exceed_context_size_error"
        || ["maximum context length", "context length", "context window", "context size"]
            .iter()
            .any(|p| lower.contains(p));
    let shown = match message {
        "" => "The model refused the request.".to_owned(),
        // The name that the upstream knows the model by is ours to keep.
        message => shorten(&message.replace(upstream_model, "the model")),
    };
    if too_long {
        ApiError::at(Code::ContextLengthExceeded, "messages", shown)
    } else {
        ApiError::new(Code::InvalidValue, shown)
    }
}

fn shorten(text: &str) -> String {
    text.chars().take(MAX_MESSAGE_CHARS).collect()
}
