use answer::Nonsense;
use upstream_error::UpstreamError;

pub enum StreamEnd {
    Complete,
    /// No more tokens are granted.
    GrantUsedUp,
    /// The answer has more calls, or longer names, than may be delivered.
    Beyond,
    /// The upstream reported an error.
    Complained(UpstreamError),
    /// The upstream broke off, or the meter `is_unreadable`, for which the request may be to blame. The reason is for
    /// the log.
    Broken(String),
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
            | Nonsense::Interleaved => Self::Broken(nonsense.to_string()),
        }
    }
}
