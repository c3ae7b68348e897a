//! What a body depends on, in addition to the request.

use shared::ids::AccountId;
use shared_catalog::LimitParam;
use upstream_error::RefusedMembers;

use super::form::BodyForm;

/// Form in which an upstream reports progress: the tokens used so far, with every chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressReports {
    None,
    /// Requested with `continuous_usage_stats`, reported as `usage`.
    Usage,
    /// Requested with `timings_per_token`, reported as `timings` of each choice.
    Timings,
}

/// Members of a request that depend on its upstream.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamParams<'a> {
    pub form: BodyForm,
    /// Account that pays; `None` for a request for a count, because it does not identify the caller.
    pub account: Option<AccountId>,
    pub model: &'a str,
    /// The upstream's name for the output limit.
    pub limit_param: LimitParam,
    /// Tokens per choice; `None` lets the upstream generate to the end of its context.
    pub max_tokens: Option<u64>,
    pub progress: ProgressReports,
    /// Salt that separates the accounts in the upstream's cache, if supported.
    pub cache_salt: Option<&'a str>,
    /// Whether a whole answer is requested, but the upstream is asked for a stream.
    pub folded: bool,
    pub refused: RefusedMembers,
}
