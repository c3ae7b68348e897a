//! The key-service as the gateway sees it: a few questions, each with a deadline.

mod queue;
mod session;
mod wishes;

use std::{sync::Arc, time::Duration};

use shared::{
    error::ApiError,
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    refusal::Refusal,
    rpc::{
        PresentToken,
        v1::{self, answer, call},
    },
    tokens::Usage,
};
use tokio::time::{sleep, timeout};
use tonic::{Code, transport::Endpoint};

use queue::{Pending, Queue};
use session::Post;
use wishes::Wishes;

/// How long a caller waits to be authorized; past it, the client is better told to come back.
const ASK_DEADLINE: Duration = Duration::from_secs(3);
/// How long one attempt to extend, capture or release may take; the caller tries again.
const TELL_DEADLINE: Duration = Duration::from_secs(5);
/// The first pause before a question that failed is asked again; it doubles until the deadline.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// A handle on the sessions with the key-services. Cheap to clone.
#[derive(Clone)]
pub struct Keys(Arc<Handle>);

struct Handle {
    queue: Arc<Queue>,
    wishes: Arc<Wishes>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Where key-services are, and what lets us in.
pub struct Endpoints {
    /// At least one. The first ones are preferred while there is little to do.
    pub addresses: Vec<Endpoint>,
    /// The internal token.
    pub token: PresentToken,
}

/// Opens a session with every key-service, and keeps them open for as long as there are handles.
pub fn connect(endpoints: Endpoints) -> Keys {
    let Endpoints { addresses, token } = endpoints;
    let (wishes, unwanted) = Wishes::new();
    let (queue, wishes) = (Arc::new(Queue::new(addresses.len())), Arc::new(wishes));
    for (number, endpoint) in addresses.into_iter().enumerate() {
        let (token, queue, wishes) = (token.clone(), queue.clone(), wishes.clone());
        let post = Post { number, endpoint: session::patient(endpoint), token, queue, wishes };
        tokio::spawn(post.keep());
    }
    let handle = Arc::new(Handle { queue, wishes });
    tokio::spawn(wishes::take_back_all(Arc::downgrade(&handle), unwanted));
    Keys(handle)
}

/// The key-service did not answer, or could not: the outcome is unknown, and the same may be asked again.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Unavailable {
    /// No answer within the deadline.
    #[error("the key-service did not answer in time")]
    Deadline,
    /// The session has ended, since the gateway stops.
    #[error("the session with the key-service has ended")]
    Ended,
    /// It answered that it failed.
    #[error("the key-service failed: {message} (code {code})")]
    Failed {
        /// A `google.rpc.Code`.
        code: i32,
        /// Its reason.
        message: String,
    },
    /// It answered something else than was asked, or what this version does not know.
    #[error("the key-service gave an answer that does not fit")]
    Nonsense,
    /// It may have opened a hold of this generation before, which is being taken back.
    #[error("an earlier hold of the generation is in doubt")]
    InDoubt,
}

impl Unavailable {
    /// Whether the same may be answered when it is asked again soon.
    fn may_pass(&self) -> bool {
        match self {
            Self::Deadline => true,
            Self::Failed { code, .. } => is_passing(*code),
            Self::Ended | Self::Nonsense | Self::InDoubt => false,
        }
    }
}

/// Nobody could say whether the request may be served: it is not. Logged here, told plainly.
impl From<Unavailable> for ApiError {
    fn from(e: Unavailable) -> Self {
        tracing::warn!(error = %e, "a request could not be authorized");
        Self::service_unavailable()
    }
}

/// A hold to open.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The presented key.
    pub credential: String,
    /// The generation.
    pub generation: GenerationId,
    /// The model's id.
    pub model: String,
    /// A bound on the prompt that cannot be too low.
    pub prompt_tokens: u64,
    /// Output tokens wanted, over all choices.
    pub output_tokens: u64,
    /// Fewer are not worth having while others hold the rest.
    pub enough_output_tokens: u64,
    /// With fewer the request cannot be served at all.
    pub least_output_tokens: u64,
}

/// An open hold.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Which hold, as every further message names it.
    pub hold: v1::HoldRef,
    /// The account that pays.
    pub account: AccountId,
    /// The key that pays.
    pub key: KeyId,
    /// Tokens of the prompt that it covers.
    pub prompt_tokens: u64,
    /// Output tokens covered.
    pub output_tokens: u64,
    /// How long it lives unless it is extended.
    pub lease: Duration,
}

/// What became of an extension.
#[derive(Clone, Copy, Debug)]
pub enum Extension {
    /// The hold goes on.
    Open {
        /// Output tokens covered in total.
        output_tokens: u64,
        /// The key was revoked.
        revoked: bool,
    },
    /// The hold is not open any more.
    Gone,
}

/// What was billed.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// Billed.
    pub charged: NanoUsd,
    /// Cost beyond what could be billed.
    pub shortfall: NanoUsd,
}

impl Keys {
    /// Whether this credential may make model calls right now.
    pub async fn authenticate(&self, credential: &str) -> Result<Result<(), Refusal>, Unavailable> {
        use v1::authenticate_response::Result as Wire;
        let required_class = v1::CredentialClass::Api.into();
        let request = v1::AuthenticateRequest { credential: credential.to_owned(), required_class };
        match self.insist(call::Request::Authenticate(request), &mut None).await? {
            answer::Response::Authenticate(v1::AuthenticateResponse { result: Some(result) }) => match result
            {
                Wire::Principal(_) => Ok(Ok(())),
                Wire::Refusal(refusal) => Ok(Err(read_refusal(refusal)?)),
            },
            other => Err(unexpected(other)),
        }
    }

    /// Opens a hold. Where that fails, or nobody waits for it any more, a hold that may be open all the same is released.
    pub async fn authorize(&self, ask: Ask) -> Result<Result<Grant, Refusal>, Unavailable> {
        let mut wish = self.0.wishes.wish(ask.generation).ok_or(Unavailable::InDoubt)?;
        let asked =
            Asked { generation: ask.generation, model: ask.model.clone(), prompt_tokens: ask.prompt_tokens };
        let request = call::Request::Authorize(v1::AuthorizeRequest {
            credential: ask.credential,
            generation_id: ask.generation.to_string(),
            model: ask.model,
            prompt_tokens: ask.prompt_tokens,
            output_tokens: ask.output_tokens,
            enough_output_tokens: ask.enough_output_tokens,
            least_output_tokens: ask.least_output_tokens,
        });
        let response = self.insist(request, &mut wish.asked).await?;
        let outcome = read_grant(response, asked)?;
        match &outcome {
            Ok(_) => wish.granted(),
            Err(_) => wish.refused(),
        }
        Ok(outcome)
    }

    /// Asks once for a hold, only to learn whether there is one.
    async fn ask_for_hold(
        &self,
        request: v1::AuthorizeRequest,
    ) -> Result<Result<v1::HoldRef, Refusal>, Unavailable> {
        let generation = request.generation_id.parse().map_err(|_| Unavailable::Nonsense)?;
        let asked = Asked { generation, model: request.model.clone(), prompt_tokens: 0 };
        let response = self.ask(call::Request::Authorize(request), ASK_DEADLINE).await?;
        Ok(read_grant(response, asked)?.map(|grant| grant.hold))
    }

    /// Renews the lease, reports `usage`, and asks for `output_tokens` in total.
    pub async fn extend(
        &self,
        hold: &v1::HoldRef,
        usage: Usage,
        prompt_tokens: u64,
        output_tokens: u64,
    ) -> Result<Extension, Unavailable> {
        use v1::extend_response::Result as Wire;
        let request = v1::ExtendRequest {
            hold: Some(hold.clone()),
            usage: Some(usage.into()),
            prompt_tokens,
            output_tokens,
        };
        match self.ask(call::Request::Extend(request), TELL_DEADLINE).await? {
            answer::Response::Extend(v1::ExtendResponse { result: Some(result) }) => Ok(match result {
                Wire::Extension(v1::Extension { output_tokens, lease_ms: _, revoked }) => {
                    Extension::Open { output_tokens, revoked }
                }
                Wire::Gone(_) => Extension::Gone,
            }),
            other => Err(unexpected(other)),
        }
    }

    /// Bills the generation; `None` where there is no such hold.
    pub async fn capture(
        &self,
        hold: &v1::HoldRef,
        usage: Usage,
        estimated: bool,
    ) -> Result<Option<Charge>, Unavailable> {
        use v1::capture_response::Result as Wire;
        let request = v1::CaptureRequest { hold: Some(hold.clone()), usage: Some(usage.into()), estimated };
        let response = self.ask(call::Request::Capture(request), TELL_DEADLINE).await?;
        match response {
            answer::Response::Capture(v1::CaptureResponse { result: Some(result) }) => {
                // Not before: until it is billed, no copy of its authorization may be taken for a hold without a use.
                self.forget(hold);
                Ok(match result {
                    Wire::Captured(captured) => Some(Charge {
                        charged: NanoUsd::from_nanos(captured.charged_nano_usd),
                        shortfall: NanoUsd::from_nanos(captured.shortfall_nano_usd),
                    }),
                    Wire::Gone(_) => None,
                })
            }
            other => Err(unexpected(other)),
        }
    }

    /// Gives the hold back.
    pub async fn release(&self, hold: &v1::HoldRef) -> Result<(), Unavailable> {
        self.forget(hold);
        let request = v1::ReleaseRequest { hold: Some(hold.clone()) };
        match self.ask(call::Request::Release(request), TELL_DEADLINE).await? {
            answer::Response::Release(v1::ReleaseResponse {}) => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn forget(&self, hold: &v1::HoldRef) {
        if let Ok(generation) = hold.generation_id.parse() {
            self.0.wishes.forget(generation);
        }
    }

    /// Asks until there is an answer, within the deadline of a question. `asked` is the first call that was made.
    async fn insist(
        &self,
        request: call::Request,
        asked: &mut Option<Arc<Pending>>,
    ) -> Result<answer::Response, Unavailable> {
        let mut failure = None;
        let answered = async {
            let _room = self.0.queue.room().await.ok_or(Unavailable::Ended)?;
            let (mut pending, mut answer) = Pending::new(request);
            let mut pause = FIRST_PAUSE;
            loop {
                asked.get_or_insert_with(|| pending.clone());
                self.0.queue.push(pending.clone());
                match answer.await.map_err(|_| Unavailable::Ended)? {
                    answer::Response::Failure(failed) if is_passing(failed.code) => failure = Some(failed),
                    response => return Ok(response),
                }
                sleep(pause).await;
                pause *= 2;
                (pending, answer) = Pending::new(pending.request.clone());
            }
        };
        match timeout(ASK_DEADLINE, answered).await {
            Ok(answered) => answered,
            Err(_) => Err(failure.map_or(Unavailable::Deadline, failed)),
        }
    }

    /// Asks once.
    async fn ask(&self, request: call::Request, deadline: Duration) -> Result<answer::Response, Unavailable> {
        let answered = async {
            let _room = self.0.queue.room().await.ok_or(Unavailable::Ended)?;
            let (pending, answer) = Pending::new(request);
            self.0.queue.push(pending);
            answer.await.map_err(|_| Unavailable::Ended)
        };
        timeout(deadline, answered).await.map_err(|_| Unavailable::Deadline)?
    }
}

/// What a grant has to remember of its question.
struct Asked {
    generation: GenerationId,
    model: String,
    prompt_tokens: u64,
}

fn read_grant(response: answer::Response, asked: Asked) -> Result<Result<Grant, Refusal>, Unavailable> {
    use v1::authorize_response::Result as Wire;
    let answer::Response::Authorize(v1::AuthorizeResponse { result: Some(result) }) = response else {
        return Err(unexpected(response));
    };
    match result {
        Wire::Refusal(refusal) => Ok(Err(read_refusal(refusal)?)),
        Wire::Grant(grant) => Ok(Ok(Grant {
            account: grant.account_id.parse().map_err(|_| Unavailable::Nonsense)?,
            key: grant.key_id.parse().map_err(|_| Unavailable::Nonsense)?,
            hold: v1::HoldRef {
                generation_id: asked.generation.to_string(),
                account_id: grant.account_id,
                key_id: grant.key_id,
                model: asked.model,
            },
            prompt_tokens: asked.prompt_tokens,
            output_tokens: grant.output_tokens,
            lease: Duration::from_millis(grant.lease_ms),
        })),
    }
}

fn read_refusal(refusal: i32) -> Result<Refusal, Unavailable> {
    let known = v1::Refusal::try_from(refusal).ok().and_then(Option::<Refusal>::from);
    known.ok_or(Unavailable::Nonsense)
}

fn unexpected(response: answer::Response) -> Unavailable {
    match response {
        answer::Response::Failure(failure) => failed(failure),
        answer::Response::Authenticate(_)
        | answer::Response::Authorize(_)
        | answer::Response::Extend(_)
        | answer::Response::Capture(_)
        | answer::Response::Release(_) => Unavailable::Nonsense,
    }
}

fn failed(v1::Failure { code, message }: v1::Failure) -> Unavailable {
    Unavailable::Failed { code, message }
}

/// Whether a failure of this code may be over when the same is asked again: the store was out of reach.
fn is_passing(code: i32) -> bool {
    matches!(Code::from(code), Code::Unavailable | Code::DeadlineExceeded)
}

#[cfg(test)]
mod tests;
