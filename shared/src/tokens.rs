use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// Usage of a request as the model server counts it. `completion` includes reasoning tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
pub struct Usage {
    /// Number of tokens in the prompt, including cached tokens.
    #[n(0)]
    pub prompt: u64,
    /// Number of prompt tokens that the model server read from its cache. They are part of `prompt`.
    #[n(1)]
    pub cached: u64,
    /// Number of generated tokens, for all choices together.
    #[n(2)]
    pub completion: u64,
    /// Counts of the kinds of tokens and images that may have a separate price.
    #[serde(default, skip_serializing_if = "UsageDetails::is_empty")]
    #[cbor(n(3), skip_if = "UsageDetails::is_empty")]
    pub details: UsageDetails,
}

/// Counts of the kinds of tokens and images that may have a separate price. For most requests, all are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageDetails {
    /// Number of prompt tokens that were written to the cache for some minutes.
    #[n(0)]
    pub cache_write: u64,
    /// Number of prompt tokens that were written to the cache for an hour or longer. They are not part of
    /// `cache_write`.
    #[n(1)]
    pub cache_write_long: u64,
    #[n(2)]
    pub audio_input: u64,
    /// Number of images in the prompt. Their tokens are part of `prompt`.
    #[n(3)]
    pub images: u64,
    #[n(4)]
    pub reasoning: u64,
    #[n(5)]
    pub audio_output: u64,
}

/// Number of token kinds that metrics and spans distinguish.
pub const TOKEN_KINDS: usize = 5;

impl Usage {
    pub const fn of(prompt: u64, cached: u64, completion: u64) -> Self {
        let details = UsageDetails {
            cache_write: 0,
            cache_write_long: 0,
            audio_input: 0,
            images: 0,
            reasoning: 0,
            audio_output: 0,
        };
        Self { prompt, cached, completion, details }
    }

    /// Returns the number of tokens of each kind that metrics and spans distinguish: input, output, input that was read
    /// from a cache, input that was written to a cache, and reasoning.
    pub const fn by_kind(&self) -> [u64; TOKEN_KINDS] {
        let Self { prompt, cached, completion, details } = self;
        [*prompt, *completion, *cached, details.cache_write + details.cache_write_long, details.reasoning]
    }

    /// Returns the larger value of each field. Usage only grows, and reports may arrive in any order.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        self.zip(other, u64::max)
    }

    /// Combines each field with the same field of `other`.
    #[must_use]
    pub fn zip(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let (a, b) = (self.details, other.details);
        Self {
            prompt: join(self.prompt, other.prompt),
            cached: join(self.cached, other.cached),
            completion: join(self.completion, other.completion),
            details: UsageDetails {
                cache_write: join(a.cache_write, b.cache_write),
                cache_write_long: join(a.cache_write_long, b.cache_write_long),
                audio_input: join(a.audio_input, b.audio_input),
                images: join(a.images, b.images),
                reasoning: join(a.reasoning, b.reasoning),
                audio_output: join(a.audio_output, b.audio_output),
            },
        }
    }
}

impl UsageDetails {
    /// Returns whether every number is zero. Then nothing needs to be written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
