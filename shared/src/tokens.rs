//! Tokens: what a request asked for and what it used.

use serde::{Deserialize, Serialize};

/// What a request has used, as the model server counts it. Reasoning tokens are inside `completion`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub prompt: u64,
    /// Tokens of the prompt that the model server had cached; never more than `prompt`.
    pub cached: u64,
    /// Tokens generated, over all choices.
    pub completion: u64,
}

impl Usage {
    /// The larger of both, field by field: usage only ever grows, whatever order its reports arrive in.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.max(other.prompt),
            cached: self.cached.max(other.cached),
            completion: self.completion.max(other.completion),
        }
    }
}
