//! Passes requests for the management API, the dashboard and the operators' pages on to a key-service, and passes its
//! answers back.

mod forwarded;

use std::sync::Arc;

use admission::{Caller, take_bytes};
use axum::body::Body;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::body::Body as _;
use shared::{error::ApiError, ids::AccountId, key::Class, wire::OWN_KEY};
use shared_door::http::{bearer, read_body_within};
use shared_observe::traces;
use tracing::Instrument;

use super::{
    app::{App, Call},
    caller,
    management::{CredentialMark, ReplayableRequest, kept_until_taken, strip},
};
use forwarded::Forwarded;

/// Maximum size of a form from a page, in bytes.
const MAX_FORM: usize = 32 << 10;
/// Size in bytes up to which a form is read even if the budget for unauthenticated callers is used up, so that people
/// can still sign in. The number of requests of unauthenticated callers is limited, and this limits the memory for such
/// small forms.
const SMALL_FORM: usize = 4 << 10;

/// Beginning of the operator API's paths.
const OPERATOR_PATHS: &str = "/v1/operator/";

/// Path of the form that signs in with a password.
const SIGN_IN: &str = "/dashboard/sign-in";

/// Handles all methods on `/v1/management/…`, and on the route that shows an API key to its holder.
pub(super) async fn forward(app: Arc<App>, call: Call) -> Result<Response<Body>, ApiError> {
    let caller = call.caller();
    let Call { id, span: trace, mut request } = call;
    let trace = trace.http_request(request.method());
    let forwarded = Forwarded::of(&request, app.proxy_trusted);
    let span = app.management.identified(&mut request, id, &trace);
    forwarded.write(request.headers_mut());
    let class = class_of(request.uri().path());
    let Some((account, mark)) = account(&app, request.headers(), class, &caller).await? else {
        return refused(&app, request, &caller, &trace).instrument(span).await;
    };
    let permit = app.management.permits.of_account(account)?;
    let request = ReplayableRequest::read(request).await?;
    let mut response = app.management.carry(request, &trace).instrument(span).await?;
    if response.status() == StatusCode::UNAUTHORIZED {
        app.management.accepted.refuse(mark);
    } else {
        caller.accepted(account);
    }
    strip(response.headers_mut());
    Ok(kept_until_taken(response, permit))
}

/// The class of keys that a path is for.
fn class_of(path: &str) -> Class {
    if path == OWN_KEY {
        Class::Api
    } else if path.starts_with(OPERATOR_PATHS) {
        Class::Operator
    } else {
        Class::Management
    }
}

/// If the request has a key of this class, finds the key's account, before the body is read. A key-service is asked
/// only about a credential that has not been accepted before.
async fn account(
    app: &App,
    headers: &HeaderMap,
    class: Class,
    caller: &Caller,
) -> Result<Option<(AccountId, CredentialMark)>, ApiError> {
    let Ok(presented) = bearer(headers) else { return Ok(None) };
    let mark = CredentialMark::of(presented, class);
    if let Some(account) = app.management.accepted.account(mark) {
        return Ok(Some((account, mark)));
    }
    let Ok(identity) = caller::identify(app, presented, class, caller).await? else { return Ok(None) };
    app.management.accepted.accept(mark, identity.account());
    Ok(Some((identity.account(), mark)))
}

/// Gets the key-service's own refusal. The key-service needs only the request's head for that.
async fn refused(
    app: &App,
    request: Request<Body>,
    caller: &Caller,
    trace: &traces::Span,
) -> Result<Response<Body>, ApiError> {
    let permit = app.management.permits.unauthenticated(caller.0.network()).await?;
    let unread = !request.body().is_end_stream();
    let mut head = request.map(|_unread| Body::empty());
    for of_body in [header::CONTENT_LENGTH, header::EXPECT] {
        head.headers_mut().remove(of_body);
    }
    let response = app.management.carry(ReplayableRequest::read(head).await?, trace).await?;
    let mut response = app.management.taken(response, permit).await?;
    if unread {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Handles all methods on `/dashboard…` and `/operator…`. The key-service gets the client's address, and the host that
/// the client used.
pub(super) async fn forward_page(app: Arc<App>, call: Call) -> Result<Response<Body>, ApiError> {
    let Call { id, span: trace, mut request } = call;
    let trace = trace.http_request(request.method());
    let forwarded = Forwarded::of(&request, app.proxy_trusted);
    let signs_in = request.uri().path().trim_end_matches('/') == SIGN_IN;
    let span = app.management.identified(&mut request, id, &trace);
    forwarded.write(request.headers_mut());
    // Only the key-service can check a session. Until it has, a form counts against the budget of unauthenticated
    // callers.
    let mut memory = app.generator.admission.small_body();
    let (head, body) = request.into_parts();
    let mut free = SMALL_FORM;
    let mut reserve = |bytes: usize| {
        let beyond = bytes.saturating_sub(free);
        free = free.saturating_sub(bytes);
        take_bytes(&mut memory, beyond)
    };
    let form = read_body_within(&head.headers, body, MAX_FORM, &mut reserve).await?;
    let permit = app.management.permits.page(forwarded.network()).await?;
    let request = ReplayableRequest::read(Request::from_parts(head, Body::from(form))).await?;
    let response = app.management.carry(request, &trace).instrument(span).await?;
    if signs_in && forwarded.untrusted && response.status() == StatusCode::TOO_MANY_REQUESTS {
        tracing::warn!(
            address = forwarded.address,
            "too many sign-ins came from one address, whose requests carry X-Forwarded-For: if it is a proxy, set \
             FAREGATE_TRUST_PROXY; otherwise everyone behind it counts as one client"
        );
    }
    app.management.taken(response, permit).await
}
