//! Opens the hold of a generation. If there is too little money for the prompt's upper bound, there may be enough for
//! its exact count. So the prompt is counted before the request is refused.

use std::sync::Arc;

use holds::{HeldRequest, OpenHold};
use metering::GRANT_TOKENS;
use request::Forward;
use shared::{
    error::{ApiError, Code},
    generation::Origin,
    ids::AccountId,
    key::Class,
    rates::{RateBound, TokenRoom},
    refusal::{Denial, Refusal},
};
use shared_door::admission::Owner;
use shared_rpc::{Authorize, Extended, Extension, Grant};
use tokio::time::Instant;
use upstreams::{CountTerms, NotCounted, PassedHead, Pool, Running, UpstreamFailure};

use super::{generator::Generator, job::Job};

/// Minimum number of tokens to start a stream that is extended in grants. If other holds leave money for fewer, the
/// client should retry later.
const ENOUGH_BY_GRANTS: u64 = 64;
/// Minimum number of tokens per choice to start an answer that cannot be extended. If other holds leave money for
/// fewer, the client should retry later.
const ENOUGH_AT_ONCE: u64 = 4096;

/// Maximum number of output tokens that a request needs if it sets no budget for the model's reasoning.
const ENOUGH_WITHOUT_THINKING: u64 = 16;
/// If a prompt's upper bound is at least this, a vendor is asked to count the prompt, so that less is held. The bound,
/// one token per byte, is about four times too high. For a smaller prompt, the difference is less than what every
/// answer holds for its output.
const WORTH_COUNTING: u64 = ENOUGH_AT_ONCE;

/// Number of tokens that a rate allows, if an older key-service does not report it. Only counting the prompt shows
/// whether it fits.
const UNTOLD_ROOM: TokenRoom = TokenRoom { limit: u64::MAX, remaining: u64::MAX };

pub(super) struct Authorized {
    pub(super) hold: OpenHold,
    pub(super) asked: u64,
    /// The upstream that counted the prompt. It will get the request.
    pub(super) counted_by: Option<Running>,
}

impl Generator {
    pub(super) async fn authorize(&self, job: &mut Job, pool: &Pool) -> Result<Authorized, ApiError> {
        // Only a stream that shows its tokens can be stopped at the end of a grant.
        let shows_progress = pool.shows_progress(&job.forward) && !job.forward.may_hide_tokens;
        let by_grants = job.forward.stream && shows_progress;
        let (asked, enough) = if by_grants {
            (job.wanted().min(GRANT_TOKENS), ENOUGH_BY_GRANTS)
        } else {
            (job.wanted(), ENOUGH_AT_ONCE.saturating_mul(job.forward.n))
        };
        let bound = job.forward.prompt_bound.saturating_add(pool.prompt_overhead());
        let request = Authorize {
            credential: job.credential.clone(),
            generation: job.id,
            model: job.model.clone(),
            prompt_tokens: bound,
            images: job.forward.images,
            readmitted: false,
            rated_tokens: None,
            is_free: false,
            output_tokens: asked,
            enough_output_tokens: enough.min(asked),
            least_output_tokens: job.forward.least_output.min(asked),
            valid_until: None,
            origin: Some(Arc::new(job.forward.take_origin(job.request))),
            can_count: is_worth_counting(&job.forward) && pool.counts(&job.forward),
        };
        if job.forward.needs_count {
            return Box::pin(self.authorize_counted(job, pool, request, None)).await;
        }
        let asked_at = Instant::now();
        let denial = match self.keys.authorize(request.clone()).await? {
            Ok(grant) => {
                let hold = self.open(job, grant, bound, asked_at).await?;
                return Ok(Authorized { hold, asked, counted_by: None });
            }
            Err(denial) => denial,
        };
        match counting(&denial, &job.forward) {
            Counting::Useless => Err(refused(denial, &job.forward)),
            Counting::MayPay => Box::pin(self.authorize_counted(job, pool, request, Some(denial))).await,
            Counting::MayFitTokens => Box::pin(self.admit_counted(job, pool, request, denial)).await,
        }
    }

    /// Opens the hold for the exact count of a prompt whose upper bound was refused, or that has no upper bound
    /// (`denial` is absent). While the prompt is counted, its lower bound is held, so that the upstream does not count
    /// a prompt that the key cannot pay for anyway. If the upper bound was refused only because it would take much of
    /// what is left, and the count fails, the hold is opened for the upper bound.
    async fn authorize_counted(
        &self,
        job: &mut Job,
        pool: &Pool,
        request: Authorize,
        denial: Option<Denial>,
    ) -> Result<Authorized, ApiError> {
        let running =
            pool.choose(None, job.forward.image_urls, None, None).ok_or_else(UpstreamFailure::no_upstream)?;
        let uncounted = |forward: &Forward| denial.clone().map_or_else(uncountable, |d| refused(d, forward));
        if !running.upstream().counts(&job.forward) {
            // If the key may not call any model, the client gets that error instead.
            self.keys.authenticate(&job.credential, Class::Api).await??;
            return Err(uncounted(&job.forward));
        }
        let (bound, asked) = (request.prompt_tokens, request.output_tokens);
        let hold = self.authorize_anew(job, least_of(&request, &job.forward)).await?;
        let counted = self.try_count(&running, job).await;
        let is_reserved = denial.as_ref().is_some_and(|denial| denial.refusal == Refusal::SpendReserved);
        let again = Authorize { readmitted: true, can_count: false, ..request };
        let exact = match counted {
            Ok(exact) if exact < bound || denial.is_none() => exact,
            Ok(_) | Err(_) if is_reserved => {
                hold.release().await;
                let hold = self.authorize_anew(job, again).await?;
                return Ok(Authorized { hold, asked, counted_by: None });
            }
            Ok(_) | Err(NotCounted::Unsupported) => {
                hold.release().await;
                return Err(uncounted(&job.forward));
            }
            Err(NotCounted::Away | NotCounted::Busy) => {
                hold.release().await;
                return Err(not_counted());
            }
        };
        // A token rate has counted the lower bound. Only with a new hold does it count the exact prompt.
        if !hold.has_token_rate() {
            let covered = match hold.extend(exact, again.images, asked).await {
                Ok(Extended::Open(Extension { output_tokens, .. })) => output_tokens,
                Ok(Extended::Gone) | Err(_) => 0,
            };
            if covered >= again.enough_output_tokens {
                return Ok(Authorized { hold, asked, counted_by: Some(running) });
            }
        }
        // If there is too little money, the key-service decides whether this is final, or only because of other holds.
        hold.release().await;
        let hold = self.authorize_anew(job, Authorize { prompt_tokens: exact, ..again }).await?;
        Ok(Authorized { hold, asked, counted_by: Some(running) })
    }

    /// Opens the hold for an exact count, if the upper bound exceeds the tokens per minute. If the upstream cannot
    /// count, an estimate must fit. A prompt that cannot fit at the moment is not counted. While the prompt is counted,
    /// its lower bound is held, so that the rates treat every count as a request, whatever happens next.
    async fn admit_counted(
        &self,
        job: &mut Job,
        pool: &Pool,
        request: Authorize,
        denial: Denial,
    ) -> Result<Authorized, ApiError> {
        let room = denial.token_room().unwrap_or(UNTOLD_ROOM);
        let (least, estimate) = (job.forward.prompt_least, job.forward.prompt_estimate);
        if least > room.limit {
            return Err(never_fits(estimate.max(least), "has about", room));
        }
        if least > room.remaining {
            return Err(denial.into());
        }
        let running =
            pool.choose(None, job.forward.image_urls, None, None).ok_or_else(UpstreamFailure::no_upstream)?;
        let (asked, can_count) = (request.output_tokens, running.upstream().counts(&job.forward));
        let mut counted = Err(NotCounted::Unsupported);
        if can_count {
            let hold = self.authorize_anew(job, least_of(&request, &job.forward)).await?;
            counted = self.try_count(&running, job).await;
            hold.release().await;
        }
        let again = Authorize { readmitted: can_count, can_count: false, ..request };
        let (again, size, counted_by) = match counted {
            Ok(exact) => (Authorize { prompt_tokens: exact, ..again }, "has", Some(running)),
            Err(NotCounted::Unsupported) => {
                (Authorize { rated_tokens: Some(estimate), ..again }, "has about", None)
            }
            Err(NotCounted::Away | NotCounted::Busy) => return Err(denial.into()),
        };
        let tokens = again.rated_tokens.unwrap_or(again.prompt_tokens);
        if tokens > room.limit {
            return Err(never_fits(tokens, size, room));
        }
        let hold = self.authorize_anew(job, again).await?;
        Ok(Authorized { hold, asked, counted_by })
    }

    /// Adopts the hold of an authorized request and counts it against the paying account. If the account's share is
    /// used up, the hold is released.
    async fn open(
        &self,
        job: &mut Job,
        grant: Grant,
        prompt_tokens: u64,
        asked_at: Instant,
    ) -> Result<OpenHold, ApiError> {
        let charged = job.admitted.charge_to(grant.hold.account);
        let (accepted, slot) = (job.accepted, job.admitted.slot());
        let hold = self.holds.open(grant, HeldRequest { accepted, asked_at, prompt_tokens, slot });
        if let Err(overloaded) = charged {
            tracing::info!(generation = %job.id, key = %hold.key(), "an account has no free slot for another request");
            hold.release().await;
            return Err(overloaded);
        }
        Ok(hold)
    }

    /// Authorizes a request again, under a new generation id. The release of the last hold, or a copy of its
    /// authorization, may still be in flight. With the same id, these would affect the new hold.
    async fn authorize_anew(&self, job: &mut Job, request: Authorize) -> Result<OpenHold, ApiError> {
        job.id = self.keys.new_generation();
        let (asked_at, prompt_tokens) = (Instant::now(), request.prompt_tokens);
        let rated_tokens = request.rated_tokens.unwrap_or(prompt_tokens);
        let granted = self.keys.authorize(Authorize { generation: job.id, ..request }).await?;
        let grant = granted.map_err(|denial| match denial.token_room() {
            Some(room) if rated_tokens > room.limit => never_fits(rated_tokens, "has at least", room),
            Some(_) | None => refused(denial, &job.forward),
        })?;
        self.open(job, grant, prompt_tokens, asked_at).await
    }

    /// Counts the tokens of the prompt, if the upstream does so in time. Images that the count leaves out are added
    /// with their maximum number of tokens.
    pub(super) async fn count(&self, running: &Running, job: &Job) -> Option<u64> {
        self.try_count(running, job).await.ok()
    }

    async fn try_count(&self, running: &Running, job: &Job) -> Result<u64, NotCounted> {
        let counted = running.upstream().count(&self.http, &job.forward, self.terms_of(job)).await?;
        Ok(counted.bound(&job.forward))
    }

    /// Returns the terms under which this request's prompt is counted.
    fn terms_of<'t>(&'t self, job: &'t Job) -> CountTerms<'t> {
        CountTerms { owner: job.admitted.owner(), passed: &job.passed, admission: &self.admission }
    }

    /// Counts a request that generates nothing against the rates of its key. Refuses the request if a rate is exceeded.
    pub(crate) async fn admit_free(
        &self,
        credential: String,
        model: &str,
        origin: Origin,
        account: AccountId,
    ) -> Result<(), ApiError> {
        let request = Authorize {
            credential,
            generation: self.keys.new_generation(),
            model: model.to_owned(),
            prompt_tokens: 0,
            images: 0,
            readmitted: false,
            rated_tokens: None,
            is_free: true,
            output_tokens: 0,
            enough_output_tokens: 0,
            least_output_tokens: 0,
            valid_until: None,
            origin: Some(Arc::new(origin)),
            can_count: false,
        };
        let asked_at = Instant::now();
        let grant = self.keys.authorize(request).await??;
        // Nothing is generated, so an empty permit replaces the slot.
        let slot = Arc::new(self.admission.prompt(account));
        let request = HeldRequest { accepted: asked_at, asked_at, prompt_tokens: 0, slot };
        self.holds.open(grant, request).release().await;
        Ok(())
    }

    /// Counts the tokens of a prompt without requesting an answer: exactly if the upstream can count, and otherwise by
    /// the upper bound.
    pub(crate) async fn count_prompt(
        &self,
        pool: &Pool,
        forward: &Forward,
        passed: &PassedHead,
        account: AccountId,
    ) -> Result<u64, ApiError> {
        let running = pool.choose(Some(account), forward.image_urls, None, None);
        let running = running.ok_or_else(UpstreamFailure::no_upstream)?;
        let owner = Owner::Account(account);
        let terms = CountTerms { owner, passed, admission: &self.admission };
        match running.upstream().count(&self.http, forward, terms).await {
            Ok(counted) => Ok(counted.bound(forward)),
            Err(NotCounted::Unsupported | NotCounted::Away) => {
                Ok(forward.prompt_bound.saturating_add(pool.prompt_overhead()))
            }
            Err(NotCounted::Busy) => Err(not_counted()),
        }
    }

    /// Counts the exact tokens of the prompt, images included, if the upstream can.
    pub(super) async fn count_exactly(&self, running: &Running, job: &Job) -> Option<u64> {
        let counted = running.upstream().count(&self.http, &job.forward, self.terms_of(job)).await.ok()?;
        (counted.with_images || job.forward.image_tokens == 0).then_some(counted.tokens)
    }
}

/// Makes a request to hold the lower bound of the cost. This hold is open while the prompt is counted.
fn least_of(request: &Authorize, forward: &Forward) -> Authorize {
    Authorize {
        prompt_tokens: forward.prompt_least,
        output_tokens: request.least_output_tokens,
        enough_output_tokens: request.least_output_tokens,
        can_count: false,
        ..request.clone()
    }
}

/// Refuses a prompt with more tokens than its key may use in a minute. `size` says how exactly the number is known.
fn never_fits(tokens: u64, size: &str, room: TokenRoom) -> ApiError {
    let message = format!(
        "The prompt {size} {tokens} tokens, but the API key or its group may use only {} tokens per minute: a prompt \
         of this size is always refused.",
        room.limit
    );
    let mut error = ApiError::new(Code::RateLimitExceeded, message);
    error.final_answer = true;
    error
}

/// Makes the error for a denial. If the model may reason, what is left may pay for some output, but not for an answer
/// after the reasoning; the error then says so.
fn refused(denial: Denial, forward: &Forward) -> ApiError {
    let is_short = matches!(counting(&denial, forward), Counting::MayPay);
    let mut error = ApiError::from(denial);
    if is_short && forward.least_output > ENOUGH_WITHOUT_THINKING {
        let least = forward.least_output;
        error.message = format!(
            "{} With this thinking.budget_tokens the request needs room for its prompt and {least} output tokens.",
            error.message
        )
        .into();
    }
    error
}

/// Makes the error for a prompt that would have to be counted, but that the model's server cannot count.
fn uncountable() -> ApiError {
    let message = "Documents are accepted only if the model's server can count their tokens in advance, and this \
                   server cannot.";
    ApiError::new(Code::UnsupportedValue, message)
}

fn not_counted() -> ApiError {
    metrics::counter!("gateway_prompts_not_counted_in_time_total").increment(1);
    ApiError::new(Code::Overloaded, "The prompt could not be counted in time; try again shortly.")
}

/// Returns whether an exact count would leave more for other requests.
fn is_worth_counting(forward: &Forward) -> bool {
    forward.prompt_bound >= WORTH_COUNTING && !forward.is_chat_alone()
}

/// Whether to count a prompt whose upper bound was refused, and why.
enum Counting {
    Useless,
    /// The money that is left may pay for the exact number of tokens.
    MayPay,
    /// The exact number of tokens may fit into the tokens per minute.
    MayFitTokens,
}

/// Returns whether to count after a denial. Money held by other requests becomes free again, so retrying later is
/// better than counting now.
fn counting(denial: &Denial, forward: &Forward) -> Counting {
    match denial.refusal {
        // With the upper bound of its long prompt, an agent's request would hold as much money as several of its
        // requests use.
        Refusal::SpendReserved if is_worth_counting(forward) => Counting::MayPay,
        Refusal::KeyLimitReached | Refusal::GroupLimitReached | Refusal::InsufficientCredits => {
            Counting::MayPay
        }
        Refusal::RateLimitExceeded if denial.rate() == Some(RateBound::Tokens) => Counting::MayFitTokens,
        Refusal::RateLimitExceeded
        | Refusal::SpendReserved
        | Refusal::InvalidApiKey
        | Refusal::InvalidManagementKey
        | Refusal::InvalidOperatorKey
        | Refusal::OperatorKeyNotAllowed
        | Refusal::OperatorKeyRequired
        | Refusal::AccountSuspended
        | Refusal::AccountClosed
        | Refusal::KeyDisabled
        | Refusal::KeyExpired
        | Refusal::ManagementKeyNotAllowed
        | Refusal::ManagementKeyRequired
        | Refusal::ModelNotFound
        | Refusal::GroupArchived
        | Refusal::ModelNotAllowed => Counting::Useless,
    }
}
