//! Admission of requests: the share of the gateway's resources that a request takes before any money is held.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use request::{BodyPieces, CountBody};
use shared::{
    error::{ApiError, Code},
    ids::AccountId,
};
use shared_door::{
    admission::{Owner, Permit, Quota},
    serve::ConnectionTrust,
};
use tokio::{
    task::spawn_blocking,
    time::{Instant, timeout},
};

/// How long an unauthenticated caller waits for a permit. The work itself takes milliseconds.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a large body waits for its turn to be parsed, which takes up to a second. It also bounds the turn itself,
/// since all threads for such work may be stuck.
const PARSING_TIMEOUT: Duration = Duration::from_secs(30);
/// Size in bytes from which a body is always parsed on a separate thread. A mebibyte of long texts takes 1 to 11 ms, so
/// a smaller body delays other requests of its worker by at most 3 ms, unless it has many values.
pub const LARGE_BODY: usize = 256 << 10;
/// Maximum number of objects, lists and members in a body that is parsed on its worker's own thread. An empty message
/// takes as long as a thousand letters, and 256 KiB can hold ten thousand such messages. Brackets and colons within
/// texts count too; at worst, a long text is parsed on another thread.
const MANY_VALUES: usize = 4096;
/// Requests on unauthenticated connections share one in this many slots until they are authorized.
const UNAUTHENTICATED_PART: usize = 4;

/// The gateway's quotas, shared by all workers. Cheap to clone.
#[derive(Clone)]
pub struct Admission(Arc<Quotas>);

struct Quotas {
    slots: Quota,
    /// Chat requests on unauthenticated connections, until they are authorized.
    unauthorized: Quota,
    /// Credential checks of unauthenticated callers.
    checks: Quota,
    prompts: Quota,
    /// Bytes of small bodies whose senders are not authenticated yet.
    small_bodies: Quota,
    /// Large bodies that are being parsed.
    parsing: Quota,
    answers: Quota,
    answers_of_account: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct AdmissionSizes {
    /// Chat requests in flight at once.
    pub in_flight: usize,
    /// Requests of a single account in flight at once.
    pub in_flight_per_account: usize,
    /// Credentials of unauthenticated callers that are checked at once.
    pub checked_at_once: usize,
    /// Bytes of prompts in memory at once.
    pub prompts_bytes: usize,
    /// Bytes of a single account's prompts in memory at once.
    pub prompts_bytes_per_account: usize,
    /// Bytes of answers in memory at once.
    pub answers_bytes: usize,
    /// Bytes of a single account's answers in memory at once.
    pub answers_bytes_per_account: usize,
    /// Bytes of bodies from callers that are not authenticated yet.
    pub unauthenticated_bytes: usize,
    /// Large bodies parsed at the same time. Each takes a core for up to a second, and half of the cores keep serving.
    pub parsed_at_once: usize,
}

/// The connection that a request arrived on.
#[derive(Clone)]
pub struct Caller(pub ConnectionTrust);

impl Caller {
    /// Returns the owner of the caller's permits until its credential is accepted; `None` if one was already accepted
    /// on the connection.
    fn unauthenticated(&self) -> Option<Owner> {
        match self.0.owner() {
            owner @ Owner::Network(_) => Some(owner),
            Owner::Account(_) | Owner::Service => None,
        }
    }

    /// Trusts the connection, since it presented an accepted credential of this account. Nothing else makes it trusted.
    pub fn accepted(&self, account: AccountId) {
        self.0.grant(Owner::Account(account));
    }
}

/// What a chat request holds: a slot, the bytes of its prompt, and its connection, which becomes trusted once the
/// account is known.
pub struct Admitted {
    quotas: Arc<Quotas>,
    /// Shared with the settlement of the hold, which may outlive the request.
    slot: Arc<Permit>,
    /// Counts the request as unauthorized until the account is known.
    unauthorized: Option<Permit>,
    prompt: Permit,
    caller: Caller,
}

impl Admission {
    pub fn new(sizes: &AdmissionSizes) -> Self {
        let unauthorized = (sizes.in_flight / UNAUTHENTICATED_PART).max(1);
        Self(Arc::new(Quotas {
            slots: Quota::new(sizes.in_flight, sizes.in_flight_per_account),
            unauthorized: Quota::new(unauthorized, unauthorized),
            checks: Quota::new(sizes.checked_at_once, sizes.checked_at_once),
            prompts: Quota::new(sizes.prompts_bytes, sizes.prompts_bytes_per_account),
            small_bodies: Quota::new(sizes.unauthenticated_bytes, sizes.unauthenticated_bytes),
            parsing: Quota::new(sizes.parsed_at_once, sizes.parsed_at_once / 2),
            answers: Quota::new(sizes.answers_bytes, sizes.answers_bytes_per_account),
            answers_of_account: sizes.answers_bytes_per_account.min(sizes.answers_bytes),
        }))
    }

    /// Takes a permit for a credential check. Only unauthenticated callers need one, so that others do not queue behind
    /// them.
    pub async fn check(&self, caller: &Caller) -> Result<Option<Permit>, ApiError> {
        let late = || overloaded("Too many requests are waiting for authentication; try again shortly.");
        match caller.unauthenticated() {
            Some(owner) => wait_for_permit(&self.0.checks, owner).await.ok_or_else(late).map(Some),
            None => Ok(None),
        }
    }

    /// Makes an empty permit for the body of an unauthenticated sender.
    pub fn small_body(&self) -> Permit {
        self.0.small_bodies.empty_permit(Owner::Service)
    }

    /// Makes an empty permit for an account's prompt.
    pub fn prompt(&self, account: AccountId) -> Permit {
        self.prompt_of(Owner::Account(account))
    }

    fn prompt_of(&self, owner: Owner) -> Permit {
        self.0.prompts.empty_permit(owner)
    }

    /// Takes a turn to parse a large body. An account may have half of the turns, and alternates with the others.
    async fn turn_to_parse(&self, owner: Owner) -> Result<Permit, ApiError> {
        let deadline = Instant::now() + PARSING_TIMEOUT;
        self.0.parsing.wait(owner, 1, deadline).await.ok_or_else(parsed_too_late)
    }

    /// Processes a large body on a separate thread, when it is its account's turn. The work owns the permit for the
    /// body's bytes, and may enlarge it.
    pub async fn apart<T: Send + 'static>(
        &self,
        permit: &mut Permit,
        work: impl FnOnce(&mut Permit) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turn_to_parse(permit.owner()).await?;
        let bytes = permit.split(permit.amount());
        // The thread continues if the client leaves, so it owns the turn and the permit of the bytes.
        let waiting = Arc::new(Mutex::new(Some((work, bytes, turn))));
        let begun = waiting.clone();
        let working = spawn_blocking(move || {
            let (work, mut bytes, turn) = begun.lock().take()?;
            let done = work(&mut bytes);
            drop(turn);
            Some((done, bytes))
        });
        let Ok(worked) = timeout(PARSING_TIMEOUT, working).await else {
            // If no thread has begun the work, it is dropped with its turn and its bytes.
            drop(waiting.lock().take());
            return Err(parsed_too_late());
        };
        let (done, bytes) = worked.ok().flatten().ok_or_else(ApiError::internal)?;
        *permit = bytes;
        Ok(done)
    }

    /// Writes the body of a request to count a prompt's tokens. A large body is written on a separate thread, and its
    /// bytes count towards the owner's prompts.
    pub async fn count_body(&self, owner: Owner, body: CountBody) -> Result<BodyPieces, ApiError> {
        let unwritten = match body {
            CountBody::Written(body) => return Ok(body),
            CountBody::Unwritten(body) if body.bytes() < LARGE_BODY => return Ok(body.write()),
            CountBody::Unwritten(body) => body,
        };
        let mut permit = self.prompt_of(owner);
        take_bytes(&mut permit, unwritten.bytes())?;
        let BodyPieces { head, rest } = self.apart(&mut permit, |_| unwritten.write()).await?;
        Ok(BodyPieces { head, rest: permit.kept_by(rest) })
    }

    /// Returns the maximum memory for the answers of one account, in bytes.
    pub fn largest_answer(&self) -> usize {
        self.0.answers_of_account
    }

    pub fn answers(&self) -> &Quota {
        &self.0.answers
    }

    /// Admits a chat request if a slot is free. An unauthenticated caller waits for a permit.
    pub async fn admit(&self, caller: Caller, prompt: Permit) -> Result<Admitted, ApiError> {
        let full = || overloaded("Too many requests are in flight; try again shortly.");
        let unauthorized = match caller.unauthenticated() {
            Some(owner) => Some(wait_for_permit(&self.0.unauthorized, owner).await.ok_or_else(full)?),
            None => None,
        };
        let slot = Arc::new(self.0.slots.try_take(Owner::Service, 1).ok_or_else(full)?);
        Ok(Admitted { quotas: self.0.clone(), slot, unauthorized, prompt, caller })
    }
}

impl Admitted {
    /// Counts the request against the account that pays, and trusts its connection. Only the first call counts, and it
    /// must come before a hold shares the slot.
    pub fn charge_to(&mut self, account: AccountId) -> Result<(), ApiError> {
        let owner = Owner::Account(account);
        if self.slot.owner() == owner {
            return Ok(());
        }
        self.caller.accepted(account);
        self.unauthorized = None;
        if !Arc::get_mut(&mut self.slot).is_some_and(|slot| slot.move_to(owner)) {
            metrics::counter!("gateway_account_share_used_up_total").increment(1);
            return Err(overloaded("Too many requests of this account are in flight; try again shortly."));
        }
        if self.prompt.owner() != owner {
            let bytes = self.prompt.amount();
            self.prompt = self.quotas.prompts.try_take(owner, bytes).ok_or_else(no_memory)?;
        }
        Ok(())
    }

    /// Returns the owner of the request: the paying account, once it is known.
    pub fn owner(&self) -> Owner {
        self.slot.owner()
    }

    /// Returns the slot, for the hold to keep.
    pub fn slot(&self) -> Arc<Permit> {
        self.slot.clone()
    }

    /// Releases the bytes of a freed prompt, except the `kept` bytes that the request still has.
    pub fn forget_prompt(&mut self, kept: usize) {
        self.prompt.shrink_to(kept);
    }

    /// Counts the prompt's remaining bytes until the answer is freed, since the answer repeats them. If they are few,
    /// they are released with the request.
    pub fn leave_with(&mut self, answer: Bytes) -> Bytes {
        let repeated = self.prompt.amount();
        if repeated < LARGE_BODY { answer } else { self.prompt.split(repeated).kept_by(answer) }
    }
}

/// Returns whether parsing a body may take milliseconds and so delay other requests of its worker.
pub fn parses_slowly(body: &[u8]) -> bool {
    body.len() >= LARGE_BODY || memchr::memchr3_iter(b'{', b'[', b':', body).nth(MANY_VALUES).is_some()
}

/// Takes bytes of a body or a prompt. If too few are left, the error asks the client to retry, unless the request would
/// never fit.
pub fn take_bytes(permit: &mut Permit, bytes: usize) -> Result<(), ApiError> {
    if permit.try_grow(bytes) {
        return Ok(());
    }
    let most = permit.most();
    if permit.amount().saturating_add(bytes) <= most {
        return Err(no_memory());
    }
    let message = format!(
        "The request needs more than the {} MiB of memory that this gateway allows for an account's prompts.",
        most >> 20
    );
    Err(ApiError::new(Code::RequestTooLarge, message))
}

/// Enlarges the permit to `bytes`, unless it is already that large.
pub fn grow_to(permit: &mut Permit, bytes: usize) -> Result<(), ApiError> {
    take_bytes(permit, bytes.saturating_sub(permit.amount()))
}

/// Waits for a permit. Owners take turns.
pub async fn wait_for_permit(quota: &Quota, owner: Owner) -> Option<Permit> {
    quota.wait(owner, 1, Instant::now() + PERMIT_TIMEOUT).await
}

fn no_memory() -> ApiError {
    metrics::counter!("gateway_prompts_without_room_total").increment(1);
    overloaded("This gateway has no memory left for a prompt of this size; try again shortly.")
}

fn parsed_too_late() -> ApiError {
    overloaded("Too many large requests are waiting to be read; try again shortly.")
}

fn overloaded(message: &'static str) -> ApiError {
    ApiError::new(Code::Overloaded, message)
}

#[cfg(test)]
mod tests;
