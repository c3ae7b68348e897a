//! Members of an account in the operator API.

use std::convert::Infallible;

use axum::{
    extract::{FromRequestParts, Request, State},
    response::{IntoResponse, Response},
};
use domain::{
    governed::unknown_group,
    member::{LinkMaker, Member, MemberRefused, Role},
    settings::Patch,
};
use http::{StatusCode, header, request::Parts};
use shared::{
    error::{ApiError, Code},
    ids::{GroupId, MemberId},
    text::sentence,
    wire::{Kept, MemberField, Value},
};
use shared_door::{
    http::{X_FORWARDED_PROTO, base, ok},
    serve::OverTls,
};

use crate::{
    api::Api,
    body::{self, IDEMPOTENT_REPLAYED},
    listing,
    operator_caller::OfAccount,
    parts::PathId,
    query::{self, Filtered, Query},
};
use key_service_management::{
    Error,
    members::{Token, link as address},
};
use key_service_objects::{Shown as _, member_object};

impl Filtered for Member {
    fn filter(_: &Query<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}

/// Settings of a new member, from a request's body.
struct MemberDraft {
    name: String,
    role: String,
    group: Option<GroupId>,
}

impl Default for MemberDraft {
    fn default() -> Self {
        Self { name: String::new(), role: Role::Owner.as_str().to_owned(), group: None }
    }
}

impl Patch for MemberDraft {
    type Field = MemberField;

    fn set(&mut self, field: MemberField, value: Value) -> bool {
        match field {
            MemberField::Name => String::from_value(value).map(|name| self.name = name).is_some(),
            MemberField::Role => String::from_value(value).map(|role| self.role = role).is_some(),
            MemberField::GroupId => Kept::from_value(value).map(|group| self.group = group).is_some(),
        }
    }
}

pub(crate) async fn list(
    State(api): State<Api>,
    OfAccount { account, .. }: OfAccount,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query::read::<Member>(request.uri().query())?.in_pages();
    listing::respond(api, account.id, query).await
}

pub(crate) async fn invite(
    State(api): State<Api>,
    OfAccount { account, governor, .. }: OfAccount,
    PublicAddress(public): PublicAddress,
    request: Request,
) -> Result<Response, ApiError> {
    let path = body::collection_path(&request);
    let idempotency_key = body::idempotency_key(request.headers(), &governor)?;
    let MemberDraft { name, role, group } = body::read_draft(request).await?;
    let role = Role::parse(&role, group).ok_or_else(|| {
        ApiError::at(
            Code::InvalidValue,
            "group_id",
            "`group_id` must name the group of a lead, and of nobody else.",
        )
    })?;
    let invited =
        api.management.invite_once(account.id, (&name, role), idempotency_key, governor.actor).await;
    let (member, token) = invited.map_err(refused)?;
    let location = [(header::LOCATION, format!("{path}/{}", member.id))];
    Ok(if let Some(token) = token {
        (StatusCode::CREATED, location, with_link(&member, &public, &token)).into_response()
    } else {
        let body = ok(&member.shown(api.clock.now()));
        (StatusCode::CREATED, location, [IDEMPOTENT_REPLAYED], body).into_response()
    })
}

/// Removes a member. Removing a member again is answered like an unknown member.
pub(crate) async fn remove(
    State(api): State<Api>,
    OfAccount { account, governor, .. }: OfAccount,
    path: PathId<MemberId>,
) -> Result<Response, ApiError> {
    let id = path.or(unknown())?;
    let member = api.management.find_member(account.id, id).await.map_err(refused)?;
    api.management.remove_member(account.id, id, governor.actor).await.map_err(refused)?;
    Ok(ok(&member.shown(api.clock.now())))
}

pub(crate) async fn link(
    State(api): State<Api>,
    OfAccount { account, governor, .. }: OfAccount,
    PublicAddress(public): PublicAddress,
    path: PathId<MemberId>,
) -> Result<Response, ApiError> {
    let member = api.management.find_member(account.id, path.or(unknown())?).await.map_err(refused)?;
    let by = LinkMaker::of(&governor.actor);
    let token = api.management.sign_in_link(account.id, &member, by).await.map_err(refused)?;
    Ok(with_link(&member, &public, &token))
}

fn with_link(member: &Member, public: &str, token: &Token) -> Response {
    ok(&member_object(member, Some(&address(public, token))))
}

fn unknown() -> ApiError {
    ApiError::new(Code::MemberNotFound, "The account has no such member.")
}

fn refused(error: Error<MemberRefused>) -> ApiError {
    let says = |reason: MemberRefused| sentence(&reason.to_string());
    let said = |reason: MemberRefused| match reason {
        MemberRefused::NotFound => unknown(),
        MemberRefused::NameTaken => ApiError::at(Code::MemberNameTaken, "name", says(reason)),
        MemberRefused::TooMany => ApiError::new(Code::TooManyMembers, says(reason)),
        MemberRefused::BadName => ApiError::at(Code::InvalidValue, "name", says(reason)),
        MemberRefused::NoSuchGroup => unknown_group("group_id"),
        MemberRefused::LastOwner => ApiError::new(Code::LastOwner, says(reason)),
        MemberRefused::Reused => ApiError::new(Code::IdempotencyKeyReuse, says(reason)),
        // These concern people who sign in, not the callers of this API.
        MemberRefused::AccountClosed
        | MemberRefused::SeveralGroups
        | MemberRefused::BadPassword
        | MemberRefused::WrongPassword
        | MemberRefused::WrongPresentPassword
        | MemberRefused::StaleSignIn
        | MemberRefused::WrongCode
        | MemberRefused::TooManyCodes
        | MemberRefused::ChallengeOver
        | MemberRefused::SecondFactorOn
        | MemberRefused::NoSecondFactor
        | MemberRefused::SecondFactorChanged
        | MemberRefused::LinkGone
        | MemberRefused::TooManyAttempts => ApiError::internal(),
    };
    error.map(said).into()
}

/// The address that members use: the configured address or, without it, the address that this request was sent to.
pub(crate) struct PublicAddress(String);

impl FromRequestParts<Api> for PublicAddress {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        if let Some(configured) = &api.public_url {
            return Ok(Self(configured.to_string()));
        }
        // The connection from a gateway may use TLS even if the client's connection to the gateway does not.
        let is_direct = !parts.headers.contains_key(X_FORWARDED_PROTO);
        let mut base = base(&parts.headers, is_direct && parts.extensions.get::<OverTls>().is_some());
        if base.host.is_empty() {
            base.host = parts.uri.authority().map_or_else(String::new, ToString::to_string);
        }
        Ok(Self(base.to_string()))
    }
}
