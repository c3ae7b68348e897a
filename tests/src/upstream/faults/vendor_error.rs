//! Errors that a script sends in the vendors' words.

use serde::{Deserialize, Serialize};

/// A vendor's error in place of an answer, in the format and words of the called API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VendorError {
    /// The vendor is overloaded: 529 at Anthropic, 503 at OpenAI.
    Overloaded,
    /// 429 with `retry-after: 7`, and a message that names the operator's organization.
    RateLimited,
    /// The operator's account has no credit: 400 at Anthropic, 429 at OpenAI.
    NoCredit,
    /// The prompt is longer than the model's window.
    PromptTooLong,
    /// The prompt and the limit together exceed the model's window, as older Anthropic models report.
    LimitTooLong,
    /// 401: the operator's key is wrong. OpenAI repeats parts of it.
    WrongKey,
}

/// Name of the operator's organization, which clients must never see.
pub const ORGANIZATION: &str = "org-secret123";

/// Seconds after which a rate-limited client may try again.
pub const RETRY_AFTER_SECONDS: u64 = 7;
