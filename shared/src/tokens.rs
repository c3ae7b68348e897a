//! Token counts of requests.

use serde::{Deserialize, Serialize};

/// Usage of a request by the model server's count. Reasoning tokens are included in `completion`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, cached tokens included.
    pub prompt: u64,
    /// Tokens of the prompt that the model server had cached; at most `prompt`.
    pub cached: u64,
    /// Tokens generated, over all choices.
    pub completion: u64,
}

impl Usage {
    /// The larger of both, field by field: usage only grows, whatever the order of reports.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.max(other.prompt),
            cached: self.cached.max(other.cached),
            completion: self.completion.max(other.completion),
        }
    }
}
