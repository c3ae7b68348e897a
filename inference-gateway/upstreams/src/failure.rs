//! Failures of an upstream, and the resulting errors for clients.

use std::{error::Error as _, fmt, time::Duration};

use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use reply::Reply;
use request::{BodyForm, Forward};
use routing::AttemptOutcome;
use shared::{
    error::{ApiError, Code},
    ids::AccountId,
    text::{cut, shown},
};
use shared_catalog::{Upstream, UpstreamApi};
use tokio::time::timeout;
use upstream_error::{MAX_ERROR_BYTES, RefusedLimit, RefusedMember, UpstreamError, Verdict};

use crate::client::SendError;

/// Maximum number of characters from an upstream's message that a client may see.
const MAX_MESSAGE_CHARS: usize = 1000;

/// Maximum number of characters from an upstream's message in a log line.
const MAX_LOGGED_CHARS: usize = 200;

/// Maximum time for the body of an error. Without a body, only the status is known.
const BODY_DEADLINE: Duration = Duration::from_secs(5);

/// A request that was not answered with a 200.
pub struct NotAnswered {
    pub failure: UpstreamFailure,
    /// The output limit, if that is what the upstream refused.
    pub limit: Option<RefusedLimit>,
    /// The member that the upstream refused, if the request can do without it.
    pub member: Option<RefusedMember>,
}

impl From<UpstreamFailure> for NotAnswered {
    fn from(failure: UpstreamFailure) -> Self {
        Self { failure, limit: None, member: None }
    }
}

/// Why an upstream did not answer with a 200.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// No server listens at the address. Another upstream may be tried.
    Unreachable(String),
    /// The upstream closed the connection before an answer. Another upstream may be tried.
    HungUp(String),
    /// The upstream is overloaded. Another upstream may be tried.
    Overloaded,
    /// The upstream limits the rate of this credential. The client may read the error. Another upstream may be tried.
    RateLimited(ApiError),
    /// No answer came in time.
    Timeout,
    /// The upstream refused the request itself.
    Refused(ApiError),
    /// The upstream refused the gateway's credential with this status. Another upstream may be tried.
    CredentialRefused(u16),
    /// The upstream failed, or its answer was unusable. Another upstream may be tried.
    Broken(String),
    /// The upstream's answer was empty: no output, no end, no tokens. Another upstream may be tried.
    Empty,
    /// The upstream does not accept the client's query or headers. Another upstream may be tried.
    NotTaken(String),
}

/// Statuses with which servers refuse a query or headers.
const NOT_TAKEN: [StatusCode; 3] =
    [StatusCode::NOT_FOUND, StatusCode::URI_TOO_LONG, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE];

impl UpstreamFailure {
    /// Returns whether the same request may succeed at another upstream. After a timeout, the client has waited long
    /// enough.
    pub const fn elsewhere(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::HungUp(_)
            | Self::Overloaded
            | Self::RateLimited(_)
            | Self::CredentialRefused(_)
            | Self::Broken(_)
            | Self::Empty
            | Self::NotTaken(_) => true,
            Self::Timeout | Self::Refused(_) => false,
        }
    }

    /// Returns whether another upstream failed in the same way, so that the request may have caused both failures.
    pub fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Broken(reason), Self::Broken(other)) => reason == other,
            (Self::HungUp(_), Self::HungUp(_)) => true,
            (Self::CredentialRefused(status), Self::CredentialRefused(other)) => status == other,
            (
                Self::Unreachable(_)
                | Self::HungUp(_)
                | Self::Overloaded
                | Self::RateLimited(_)
                | Self::Timeout
                | Self::Refused(_)
                | Self::CredentialRefused(_)
                | Self::Broken(_)
                | Self::Empty
                | Self::NotTaken(_),
                _,
            ) => false,
        }
    }

    /// Returns the effect on the upstream's health.
    pub const fn outcome(&self) -> AttemptOutcome {
        match self {
            Self::Unreachable(_) => AttemptOutcome::Unreachable,
            Self::HungUp(_) | Self::Timeout | Self::CredentialRefused(_) | Self::Broken(_) => {
                AttemptOutcome::Failed
            }
            Self::Overloaded | Self::RateLimited(_) => AttemptOutcome::Overloaded,
            // An upstream that judges requests is healthy.
            Self::Refused(_) => AttemptOutcome::Served,
            // A server that answers is healthy.
            Self::Empty | Self::NotTaken(_) => AttemptOutcome::Unjudged,
        }
    }

    /// Returns the effect on the upstream's health if the client's own body was passed on; `with_head` if its query or
    /// headers were too. What they cause is not the upstream's fault.
    pub const fn outcome_of_passed(&self, account: AccountId, with_head: bool) -> AttemptOutcome {
        match self {
            Self::CredentialRefused(_) | Self::Broken(_) if with_head => {
                AttemptOutcome::FailedWithHead(account)
            }
            Self::Overloaded if with_head => AttemptOutcome::Limited(account),
            Self::CredentialRefused(403) => AttemptOutcome::Forbidden(account),
            Self::RateLimited(_) => AttemptOutcome::Limited(account),
            Self::Unreachable(_)
            | Self::HungUp(_)
            | Self::Overloaded
            | Self::Timeout
            | Self::Refused(_)
            | Self::CredentialRefused(_)
            | Self::Broken(_)
            | Self::Empty
            | Self::NotTaken(_) => self.outcome(),
        }
    }

    /// Makes the failure of a request for which no upstream is left.
    pub fn no_upstream() -> Self {
        Self::Unreachable("every upstream of the model is drained".into())
    }

    /// Returns the failure's name for metrics, unless the request may be at fault.
    pub const fn upstreams_own(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable(_)
            | Self::HungUp(_)
            | Self::Overloaded
            | Self::RateLimited(_)
            | Self::Timeout
            | Self::CredentialRefused(_)
            | Self::Broken(_)
            | Self::Empty => Some(self.kind()),
            Self::Refused(_) | Self::NotTaken(_) => None,
        }
    }

    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::HungUp(_) => "hung_up",
            Self::Overloaded => "overloaded",
            Self::RateLimited(_) => "rate_limited",
            Self::Timeout => "timeout",
            Self::Refused(_) => "refused",
            Self::CredentialRefused(_) => "credential",
            Self::Broken(_) | Self::NotTaken(_) => "broken",
            Self::Empty => "empty",
        }
    }
}

/// Writes the text for the log. It repeats nothing that may come from a prompt, and removes characters from an
/// upstream's message that could forge a line or control a terminal.
impl fmt::Display for UpstreamFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())?;
        match self {
            Self::Unreachable(reason)
            | Self::HungUp(reason)
            | Self::Broken(reason)
            | Self::NotTaken(reason) => {
                write!(f, ": {}", shown(reason, MAX_LOGGED_CHARS))
            }
            Self::Refused(error) => write!(f, ": {}", error.code.as_str()),
            Self::CredentialRefused(status) => write!(f, ": status {status}"),
            Self::Overloaded | Self::RateLimited(_) | Self::Timeout | Self::Empty => Ok(()),
        }
    }
}

/// Makes the error for the client. Details for the operator are logged by the caller.
impl From<UpstreamFailure> for ApiError {
    fn from(failure: UpstreamFailure) -> Self {
        match failure {
            UpstreamFailure::Unreachable(_) => {
                Self::new(Code::UpstreamUnavailable, "The model cannot be reached at the moment.")
            }
            UpstreamFailure::Overloaded => {
                Self::new(Code::UpstreamUnavailable, "The model is overloaded at the moment.")
            }
            UpstreamFailure::Timeout => Self::new(Code::UpstreamTimeout, "The model did not answer in time."),
            UpstreamFailure::Refused(error) | UpstreamFailure::RateLimited(error) => error,
            UpstreamFailure::HungUp(_)
            | UpstreamFailure::CredentialRefused(_)
            | UpstreamFailure::Broken(_)
            | UpstreamFailure::Empty
            | UpstreamFailure::NotTaken(_) => Self::new(Code::UpstreamError, "The model failed to answer."),
        }
    }
}

/// Interprets a failure before any answer began.
pub(crate) fn of_connection(error: &SendError) -> UpstreamFailure {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(e) = cause {
        text = format!("{text}: {e}");
        cause = e.source();
    }
    match error {
        SendError::Connect(_) => UpstreamFailure::Unreachable(text),
        SendError::Request(_) => UpstreamFailure::HungUp(text),
    }
}

/// Longest `Retry-After` for clients, in seconds. SDKs ignore longer ones, or sleep for that long.
const MAX_RETRY_AFTER: u32 = 30;

/// Returns the seconds after which an upstream wants to be asked again.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<u32> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse::<u32>().ok()?;
    Some(seconds.clamp(1, MAX_RETRY_AFTER))
}

/// Makes the failure for a vendor's rate limit, in the vendor's words without those about the operator. Agents wait as
/// long as the words or `Retry-After` say.
fn rate_limited(error: &UpstreamError, upstream_model: &str, retry_after: Option<u32>) -> UpstreamFailure {
    let words = error.for_client(StatusCode::TOO_MANY_REQUESTS.as_u16(), upstream_model);
    let message = if let Some(words) = words {
        cut(&words, MAX_MESSAGE_CHARS).to_owned()
    } else {
        let seconds = retry_after.unwrap_or(1);
        format!("The model accepts no more requests at the moment; try again in {seconds} s.")
    };
    let mut error = ApiError::new(Code::RateLimitExceeded, message);
    error.retry_after = retry_after;
    UpstreamFailure::RateLimited(error)
}

/// Returns the failure of a request whose body was passed on. `failure` is what it would be for any other request.
pub(crate) fn of_passed(
    failure: UpstreamFailure,
    error: &UpstreamError,
    status: StatusCode,
    upstream_model: &str,
    retry_after: Option<u32>,
) -> UpstreamFailure {
    match failure {
        UpstreamFailure::Overloaded if status == StatusCode::TOO_MANY_REQUESTS => {
            rate_limited(error, upstream_model, retry_after)
        }
        UpstreamFailure::Broken(reason) if NOT_TAKEN.contains(&status) => UpstreamFailure::NotTaken(reason),
        other => other,
    }
}

/// Reads the error of a response, and the member that it refuses.
pub(crate) async fn read_error(response: Response<Incoming>) -> (UpstreamError, Option<RefusedMember>) {
    let status = response.status().as_u16();
    let body = timeout(BODY_DEADLINE, Limited::new(response.into_body(), MAX_ERROR_BYTES).collect()).await;
    let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
    (UpstreamError::read(&body), RefusedMember::find(&body, status))
}

/// Interprets an error event of a stream.
pub fn of_event(error: &UpstreamError, entry: &Upstream, forward: &Forward) -> UpstreamFailure {
    of_error(error, error.status_in_stream(), entry, forward)
}

/// Interprets an error with this status. If the request caused the error, the client gets a report of it.
pub(crate) fn of_error(
    error: &UpstreamError,
    status: u16,
    entry: &Upstream,
    forward: &Forward,
) -> UpstreamFailure {
    let words = || {
        let message = error.for_client(status, &entry.model)?;
        Some(cut(&message, MAX_MESSAGE_CHARS).to_owned())
    };
    let refused = |mut refused: ApiError| {
        if refused.param.is_none() && keeps_places(forward.form(entry), &forward.reply) {
            refused.param = error.place().map(str::to_owned);
        }
        UpstreamFailure::Refused(refused)
    };
    match error.verdict(status) {
        Verdict::TooLong => refused(forward.too_long(error.context_sizes(), words())),
        Verdict::Invalid(part) => refused(forward.invalid(part, words())),
        Verdict::TooLarge => {
            let words = words().unwrap_or_else(|| "The request is too large for the model.".into());
            refused(ApiError::new(Code::RequestTooLarge, words))
        }
        Verdict::Overloaded => UpstreamFailure::Overloaded,
        Verdict::Timeout => UpstreamFailure::Timeout,
        Verdict::Broken => broken(error, status),
    }
}

/// Returns whether locations in the upstream's body are the same in the client's body.
fn keeps_places(form: BodyForm, reply: &Reply) -> bool {
    match reply {
        Reply::Chat { .. } | Reply::Embeddings => form.api() == UpstreamApi::Chat,
        Reply::Responses(_) | Reply::Messages(_) => form.is_passed(),
    }
}

/// Makes the failure for an error of the upstream itself. Its message may quote the prompt, so it is not logged.
fn broken(error: &UpstreamError, status: u16) -> UpstreamFailure {
    UpstreamFailure::Broken(format!("status {status}, type \"{}\"", shown(&error.kind, MAX_LOGGED_CHARS)))
}

#[cfg(test)]
mod tests;
