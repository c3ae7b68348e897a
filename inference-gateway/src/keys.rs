//! The key-service as the gateway sees it: a few questions, each with a deadline.

mod session;

use std::time::Duration;

use shared::{
    error::ApiError,
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    refusal::Refusal,
    rpc::v1::{self, answer, call},
    tokens::Usage,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

pub use session::{Endpoints, connect};

/// How long a caller waits to be authorized; past it, the client is better told to come back.
const ASK_DEADLINE: Duration = Duration::from_secs(3);
/// How long one attempt to extend, capture or release may take; the caller tries again.
const TELL_DEADLINE: Duration = Duration::from_secs(5);
/// How long an authorization that nobody waits for any more is listened for, so that its hold can be released. Past
/// it, the hold's lease does the same.
const LATE_GRANT: Duration = Duration::from_secs(30);

/// A handle on the session with the key-service. Cheap to clone.
#[derive(Clone)]
pub struct Keys {
    queue: mpsc::Sender<session::Pending>,
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
        match self.ask(call::Request::Authenticate(request), ASK_DEADLINE).await? {
            answer::Response::Authenticate(v1::AuthenticateResponse { result: Some(result) }) => match result
            {
                Wire::Principal(_) => Ok(Ok(())),
                Wire::Refusal(refusal) => Ok(Err(read_refusal(refusal)?)),
            },
            other => Err(unexpected(other)),
        }
    }

    /// Opens a hold. One that is granted after nobody waits for it any more is released.
    pub async fn authorize(&self, ask: Ask) -> Result<Result<Grant, Refusal>, Unavailable> {
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
        let mut answer = self.submit(request, ASK_DEADLINE).await?;
        if let Ok(answer) = timeout(ASK_DEADLINE, &mut answer).await {
            return read_grant(answer.map_err(|_| Unavailable::Ended)?, asked);
        }
        tokio::spawn(self.clone().release_late(answer, asked));
        Err(Unavailable::Deadline)
    }

    async fn release_late(self, answer: oneshot::Receiver<answer::Response>, asked: Asked) {
        let late = timeout(LATE_GRANT, answer).await;
        if let Ok(Ok(late)) = late
            && let Ok(Ok(grant)) = read_grant(late, asked)
            && let Err(e) = self.release(&grant.hold).await
        {
            tracing::warn!(error = %e, generation = grant.hold.generation_id, "a late hold was not released; it will expire");
        }
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
        match self.ask(call::Request::Capture(request), TELL_DEADLINE).await? {
            answer::Response::Capture(v1::CaptureResponse { result: Some(result) }) => Ok(match result {
                Wire::Captured(captured) => Some(Charge {
                    charged: NanoUsd::from_nanos(captured.charged_nano_usd),
                    shortfall: NanoUsd::from_nanos(captured.shortfall_nano_usd),
                }),
                Wire::Gone(_) => None,
            }),
            other => Err(unexpected(other)),
        }
    }

    /// Gives the hold back.
    pub async fn release(&self, hold: &v1::HoldRef) -> Result<(), Unavailable> {
        let request = v1::ReleaseRequest { hold: Some(hold.clone()) };
        match self.ask(call::Request::Release(request), TELL_DEADLINE).await? {
            answer::Response::Release(v1::ReleaseResponse {}) => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    async fn ask(&self, request: call::Request, deadline: Duration) -> Result<answer::Response, Unavailable> {
        let answered = async { self.submit(request, deadline).await?.await.map_err(|_| Unavailable::Ended) };
        timeout(deadline, answered).await.map_err(|_| Unavailable::Deadline)?
    }

    /// Puts a call into the queue of the session, which may be full.
    async fn submit(
        &self,
        request: call::Request,
        deadline: Duration,
    ) -> Result<oneshot::Receiver<answer::Response>, Unavailable> {
        let (answer, answered) = oneshot::channel();
        let place = timeout(deadline, self.queue.reserve()).await.map_err(|_| Unavailable::Deadline)?;
        place.map_err(|_| Unavailable::Ended)?.send(session::Pending { request, answer });
        Ok(answered)
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
        answer::Response::Failure(v1::Failure { code, message }) => Unavailable::Failed { code, message },
        answer::Response::Authenticate(_)
        | answer::Response::Authorize(_)
        | answer::Response::Extend(_)
        | answer::Response::Capture(_)
        | answer::Response::Release(_) => Unavailable::Nonsense,
    }
}
