use answer::Nonsense;
use upstream_error::UpstreamError;

/// The end of a stream.
pub enum StreamEnd {
    Complete,
    /// No more tokens are granted.
    GrantUsedUp,
    /// The answer has more calls, or longer names, than may be delivered.
    Beyond,
    /// The upstream reported an error.
    Complained(UpstreamError),
    /// The upstream broke off; the reason is for the log.
    Broken(String),
    /// Part of the upstream's answer cannot be read, perhaps because of the request; the reason is for the log.
    Unreadable(String),
}

impl From<Nonsense> for StreamEnd {
    fn from(nonsense: Nonsense) -> Self {
        match nonsense {
            Nonsense::Beyond => Self::Beyond,
            Nonsense::Malformed { .. }
            | Nonsense::Error
            | Nonsense::Choices
            | Nonsense::Form
            | Nonsense::Unfinished
            | Nonsense::Interleaved => Self::Unreadable(nonsense.to_string()),
        }
    }
}
