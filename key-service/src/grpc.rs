//! The gRPC edge: checks messages, asks the service, and puts its answers into messages.

mod convert;

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use shared::rpc::{
    MAX_FRAME_CALLS,
    v1::{self, answer, call, key_service_server},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

use crate::service::{Answer, Call, Failed, Service};

/// The domain of our `google.rpc.ErrorInfo`.
const ERROR_DOMAIN: &str = "faregate";

/// The service behind gRPC.
pub struct Grpc {
    service: Arc<Service>,
    shutdown: CancellationToken,
}

impl Grpc {
    /// Sessions end after the frame they are at when `shutdown` is cancelled.
    pub fn new(service: Arc<Service>, shutdown: CancellationToken) -> Self {
        Self { service, shutdown }
    }

    /// A unary call is a batch of one.
    async fn one(&self, call: Result<Call, Status>) -> Result<Answer, Status> {
        let mut answers = self.service.handle(vec![call?]).await;
        match answers.pop() {
            Some(answer) => answer.map_err(|failed| failure(&failed)),
            None => Err(Status::internal("the call was not answered")),
        }
    }
}

#[tonic::async_trait]
impl key_service_server::KeyService for Grpc {
    async fn authenticate(
        &self,
        request: Request<v1::AuthenticateRequest>,
    ) -> Result<Response<v1::AuthenticateResponse>, Status> {
        self.one(convert::authenticate(request.into_inner())).await.and_then(convert::reply)
    }

    async fn authorize(
        &self,
        request: Request<v1::AuthorizeRequest>,
    ) -> Result<Response<v1::AuthorizeResponse>, Status> {
        self.one(convert::authorize(request.into_inner())).await.and_then(convert::reply)
    }

    async fn extend(
        &self,
        request: Request<v1::ExtendRequest>,
    ) -> Result<Response<v1::ExtendResponse>, Status> {
        self.one(convert::extend(request.into_inner())).await.and_then(convert::reply)
    }

    async fn capture(
        &self,
        request: Request<v1::CaptureRequest>,
    ) -> Result<Response<v1::CaptureResponse>, Status> {
        self.one(convert::capture(request.into_inner())).await.and_then(convert::reply)
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        self.one(convert::release(request.into_inner())).await.and_then(convert::reply)
    }

    type SessionStream = Pin<Box<dyn Stream<Item = Result<v1::SessionResponse, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let state = (request.into_inner(), self.service.clone(), self.shutdown.clone());
        // One frame at a time: while it is at the store, the gateway gathers the next one.
        let frames = stream::try_unfold(state, |(mut frames, service, shutdown)| async move {
            let frame = tokio::select! {
                biased;
                frame = frames.message() => frame?,
                () = shutdown.cancelled() => None,
            };
            let Some(frame) = frame else { return Ok(None) };
            let response = answer_frame(&service, frame).await?;
            Ok(Some((response, (frames, service, shutdown))))
        });
        Ok(Response::new(Box::pin(frames)))
    }
}

async fn answer_frame(service: &Service, frame: v1::SessionRequest) -> Result<v1::SessionResponse, Status> {
    if frame.calls.len() > MAX_FRAME_CALLS {
        return Err(invalid("calls", &format!("has more than {MAX_FRAME_CALLS} elements")));
    }
    metrics::histogram!("keyservice_frame_calls")
        .record(u32::try_from(frame.calls.len()).unwrap_or(u32::MAX));
    let mut answers = Vec::with_capacity(frame.calls.len());
    let (mut ids, mut calls) = (Vec::with_capacity(frame.calls.len()), Vec::with_capacity(frame.calls.len()));
    for call in frame.calls {
        match convert::call(call.request) {
            Ok(checked) => {
                ids.push(call.id);
                calls.push(checked);
            }
            Err(status) => answers.push(failed_answer(call.id, &status)),
        }
    }
    for (id, answer) in ids.into_iter().zip(service.handle(calls).await) {
        answers.push(match answer {
            Ok(answer) => v1::Answer { id, response: Some(answer.into()) },
            Err(failed) => failed_answer(id, &failure(&failed)),
        });
    }
    Ok(v1::SessionResponse { answers })
}

fn failed_answer(id: u64, status: &Status) -> v1::Answer {
    let failure = v1::Failure { code: status.code() as i32, message: status.message().to_owned() };
    v1::Answer { id, response: Some(answer::Response::Failure(failure)) }
}

/// A failure as a status; its cause is for our log, its reason for the caller's program.
fn failure(failed: &Failed) -> Status {
    let (code, reason) = match failed {
        Failed::Store(_) => (Code::Unavailable, "STORE_UNAVAILABLE"),
        Failed::UnknownModel(_) => (Code::FailedPrecondition, "MODEL_NOT_IN_CATALOGUE"),
        Failed::Confused(_) => (Code::Internal, "INTERNAL"),
    };
    tracing::warn!(error = %failed, reason, "a call failed");
    Status::with_error_details(
        code,
        failed.to_string(),
        ErrorDetails::with_error_info(reason, ERROR_DOMAIN, []),
    )
}

/// A malformed message; `field` is its place.
fn invalid(field: &str, problem: &str) -> Status {
    let details =
        ErrorDetails::with_error_info("INVALID_FIELD", ERROR_DOMAIN, [("field".into(), field.into())]);
    Status::with_error_details(Code::InvalidArgument, format!("`{field}` {problem}"), details)
}
