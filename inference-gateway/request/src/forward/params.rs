//! What a body depends on besides the request.

use shared::ids::AccountId;
use shared_catalog::LimitParam;
use upstream_error::RefusedMembers;

use super::form::BodyForm;

/// Form in which an upstream reports, with every chunk of a stream, the tokens used so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressReports {
    /// The upstream reports no progress.
    None,
    /// Asked by `continuous_usage_stats`, reported as `usage`.
    Usage,
    /// Asked by `timings_per_token`, reported as `timings` of each choice.
    Timings,
}

/// Members of a request that depend on its upstream.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamParams<'a> {
    pub form: BodyForm,
    /// Account that pays; `None` for a count, which does not identify the caller.
    pub account: Option<AccountId>,
    /// Name of the model at the upstream.
    pub model: &'a str,
    /// Name of the upstream's limit of output.
    pub limit_param: LimitParam,
    /// Tokens per choice; `None` leaves the limit to the upstream, which stops at the end of its context.
    pub max_tokens: Option<u64>,
    /// Form of the upstream's progress reports.
    pub progress: ProgressReports,
    /// Salt that separates the account's part of the upstream's cache, if supported.
    pub cache_salt: Option<&'a str>,
    /// A whole answer is requested as a stream.
    pub folded: bool,
    /// Members that the upstream refused.
    pub refused: RefusedMembers,
}
