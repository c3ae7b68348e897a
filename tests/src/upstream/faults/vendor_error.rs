//! Errors that a script can send in the words of the vendors.

use serde::{Deserialize, Serialize};

/// A vendor's error instead of an answer. It has the format and the words of the API that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VendorError {
    /// The vendor is overloaded: 529 at Anthropic, 503 at OpenAI.
    Overloaded,
    /// 429 with `retry-after: 7`. The message contains the name of the operator's organization.
    RateLimited,
    /// The operator's account has no credit: 400 at Anthropic, 429 at OpenAI.
    NoCredit,
    /// The prompt is longer than the model's window.
    PromptTooLong,
    /// The prompt and the limit together exceed the model's window. Older Anthropic models report this.
    LimitTooLong,
    /// 401, because the operator's key is wrong. OpenAI's message repeats parts of the key.
    WrongKey,
}

/// Name of the operator's organization, which clients must never see.
pub const ORGANIZATION: &str = "org-secret123";

/// A client that reached a rate limit may try again after this many seconds.
pub const RETRY_AFTER_SECONDS: u64 = 7;
