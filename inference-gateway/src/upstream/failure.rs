//! Failures of an upstream, and the resulting errors for clients.

use std::{error::Error as _, fmt, time::Duration};

use http::Response;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use shared::{
    error::{ApiError, Code},
    text::{cut, shown},
};
use tokio::time::timeout;

use super::client::SendError;
use domain::{
    routing::AttemptOutcome,
    upstream_error::{MAX_ERROR_BYTES, UpstreamError, Verdict},
};

/// Characters of an upstream's message that a client is shown.
const MAX_MESSAGE_CHARS: usize = 1000;

/// Characters of an upstream's words in a log line.
const MAX_LOGGED_CHARS: usize = 200;

/// Longest time for the body of an error. Without the body, the status says what failed.
const BODY_DEADLINE: Duration = Duration::from_secs(5);

/// An upstream did not answer with a 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No server listens at the address. Another upstream may be tried.
    Unreachable(String),
    /// The upstream hung up before an answer. Another upstream may be tried.
    HungUp(String),
    /// The upstream has too much to do. Another upstream may be tried.
    Overloaded,
    /// No answer came in time.
    Timeout,
    /// The upstream refused the request itself.
    Refused(ApiError),
    /// The upstream failed, answered nonsense, or refused our credential. Another upstream may be tried.
    Broken(String),
}

impl Failure {
    /// Returns whether the same request may succeed at another upstream. After a timeout the client has waited long
    /// enough.
    pub(crate) const fn elsewhere(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::HungUp(_) | Self::Overloaded | Self::Broken(_) => true,
            Self::Timeout | Self::Refused(_) => false,
        }
    }

    /// Effect on the upstream's health.
    pub(crate) const fn outcome(&self) -> AttemptOutcome {
        match self {
            Self::Unreachable(_) => AttemptOutcome::Unreachable,
            Self::HungUp(_) | Self::Timeout | Self::Broken(_) => AttemptOutcome::Failed,
            Self::Overloaded => AttemptOutcome::Overloaded,
            // An upstream that judges requests is well.
            Self::Refused(_) => AttemptOutcome::Served,
        }
    }

    /// Returns whether the prompt, with the requested output, did not fit the upstream's context.
    pub(crate) fn is_too_long(&self) -> bool {
        matches!(self, Self::Refused(error) if error.code == Code::ContextLengthExceeded)
    }

    /// A name for metrics.
    pub(crate) const fn kind(&self) -> &'static str {
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

/// Text for the log: no word that may be a prompt's, and an upstream's own without the characters that could forge a
/// line or command a terminal.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Unreachable(reason) | Self::HungUp(reason) | Self::Broken(reason) => {
                write!(f, ": {}", shown(reason, MAX_LOGGED_CHARS))
            }
            Self::Refused(error) => write!(f, ": {}", error.code.as_str()),
            Self::Overloaded | Self::Timeout => Ok(()),
        }
    }
}

/// Error for the client. Details for the operator are logged by the caller.
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

/// Understands that no answer began.
pub(super) fn of_connection(error: &SendError) -> Failure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    match error {
        SendError::Connect(_) => Failure::Unreachable(text),
        SendError::Request(_) => Failure::HungUp(text),
    }
}

/// Reads an error response.
pub(super) async fn of_response(response: Response<Incoming>, upstream_model: &str) -> Failure {
    let status = response.status().as_u16();
    let body = timeout(BODY_DEADLINE, Limited::new(response.into_body(), MAX_ERROR_BYTES).collect()).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
    of_error(&UpstreamError::read(&body), status, upstream_model)
}

/// Understands an error event of a stream.
pub(crate) fn of_event(error: &UpstreamError, upstream_model: &str) -> Failure {
    of_error(error, error.status_in_stream(), upstream_model)
}

fn of_error(error: &UpstreamError, status: u16, upstream_model: &str) -> Failure {
    let message = |otherwise: &str| match error.for_client(status, upstream_model) {
        None => otherwise.to_owned(),
        Some(message) => cut(&message, MAX_MESSAGE_CHARS).to_owned(),
    };
    match error.verdict(status) {
        Verdict::TooLong => {
            let message =
                message("The prompt, with the output it asks for, is longer than the model's context.");
            Failure::Refused(ApiError::at(Code::ContextLengthExceeded, "messages", message))
        }
        Verdict::Invalid => Failure::Refused(ApiError::new(
            Code::InvalidValue,
            message("The model refused the request as invalid."),
        )),
        Verdict::TooLarge => {
            Failure::Refused(ApiError::new(Code::RequestTooLarge, "The request is too large for the model."))
        }
        Verdict::Overloaded => Failure::Overloaded,
        Verdict::Timeout => Failure::Timeout,
        // The upstream's message may quote the prompt, and is kept out of the log.
        Verdict::Broken => {
            Failure::Broken(format!("status {status}, type \"{}\"", shown(&error.kind, MAX_LOGGED_CHARS)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstreams_words_forge_no_line_of_the_log() {
        let kind = "x\n2026-01-01 INFO all is well\u{1b}[2J\u{202e}".repeat(100);
        let error = UpstreamError { kind, ..UpstreamError::default() };
        for failure in [of_error(&error, 500, "m"), Failure::Unreachable("a\r\nb".into())] {
            let logged = failure.to_string();
            assert!(!logged.contains(|c: char| shared::text::is_control(c)), "{logged}");
            assert!(logged.chars().count() < 300, "{logged}");
        }
    }
}
