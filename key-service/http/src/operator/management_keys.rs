//! Management keys of an account in the operator API.

use axum::{
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use domain::{
    access::{Access, Scope},
    governed::{registry::RegistryRefused, unknown_group},
    settings::Patch,
};
use http::{StatusCode, header};
use shared::{
    error::{ApiError, Code},
    ids::{GroupId, ManagementKeyId},
    secret::ExposeSecret,
    text::is_name,
    time::Timestamp,
    wire::{Kept, MAX_LABEL_CHARS, ManagementKeyField, Value},
};
use shared_door::http::ok;

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
    management_keys::{ManagementKeyRefused, ManagementKeySettings},
};
use key_service_objects::{Shown as _, management_key_object};
use key_service_store::store::ManagementKey;

impl Filtered for ManagementKey {
    fn filter(_: &Query<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}

/// Settings of a new management key, from a request's body.
#[derive(Default)]
struct KeyDraft {
    name: String,
    scope: Scope,
    group: Option<GroupId>,
    expires_at: Option<Timestamp>,
}

impl Patch for KeyDraft {
    type Field = ManagementKeyField;

    fn set(&mut self, field: ManagementKeyField, value: Value) -> bool {
        match field {
            ManagementKeyField::Name => String::from_value(value).map(|name| self.name = name).is_some(),
            ManagementKeyField::Scope => {
                let scope = String::from_value(value).and_then(|name| Scope::parse(&name));
                scope.map(|scope| self.scope = scope).is_some()
            }
            ManagementKeyField::GroupId => Kept::from_value(value).map(|group| self.group = group).is_some(),
            ManagementKeyField::ExpiresAt => {
                Kept::from_value(value).map(|expires_at| self.expires_at = expires_at).is_some()
            }
        }
    }
}

pub(crate) async fn list(
    State(api): State<Api>,
    OfAccount { account, .. }: OfAccount,
    request: Request,
) -> Result<Response, ApiError> {
    let query = query::read::<ManagementKey>(request.uri().query())?.in_pages();
    listing::respond(api, account.id, query).await
}

pub(crate) async fn create(
    State(api): State<Api>,
    OfAccount { account, governor, .. }: OfAccount,
    request: Request,
) -> Result<Response, ApiError> {
    let path = body::collection_path(&request);
    let idempotency_key = body::idempotency_key(request.headers(), &governor)?;
    let KeyDraft { name, scope, group, expires_at } = body::read_draft(request).await?;
    if !is_name(&name, MAX_LABEL_CHARS) {
        return Err(RegistryRefused::BadName.into());
    }
    let settings = ManagementKeySettings { name, access: Access { scope, group }, expires_at };
    let issued =
        api.management.issue_management_key(account.id, settings, idempotency_key, governor.actor).await;
    let (key, plaintext) = issued.map_err(refused)?;
    let location = [(header::LOCATION, format!("{path}/{}", key.id))];
    let shown = plaintext.as_ref().map(ExposeSecret::expose_secret);
    let body = ok(&management_key_object(&key, shown));
    Ok(match plaintext {
        Some(_) => (StatusCode::CREATED, location, body).into_response(),
        None => (StatusCode::CREATED, location, [IDEMPOTENT_REPLAYED], body).into_response(),
    })
}

pub(crate) async fn fetch(
    State(api): State<Api>,
    OfAccount { account, .. }: OfAccount,
    path: PathId<ManagementKeyId>,
) -> Result<Response, ApiError> {
    let key = api.management.management_key(account.id, path.or(unknown())?).await;
    Ok(ok(&key.map_err(refused)?.shown(api.clock.now())))
}

/// Revokes a key of this account. A key of another account is reported as unknown.
pub(crate) async fn revoke(
    State(api): State<Api>,
    OfAccount { account, governor, .. }: OfAccount,
    path: PathId<ManagementKeyId>,
) -> Result<Response, ApiError> {
    let id = path.or(unknown())?;
    api.management.management_key(account.id, id).await.map_err(refused)?;
    let revoked = api.management.revoke_management_key(id, governor.actor).await.map_err(refused)?;
    Ok(ok(&revoked.shown(api.clock.now())))
}

fn unknown() -> ApiError {
    ApiError::new(Code::ManagementKeyNotFound, "The account has no such management key.")
}

fn refused(error: Error<ManagementKeyRefused>) -> ApiError {
    let said = |reason: ManagementKeyRefused| match reason {
        ManagementKeyRefused::NotFound => unknown(),
        ManagementKeyRefused::UnknownGroup => unknown_group("group_id"),
        ManagementKeyRefused::TooMany => {
            ApiError::new(Code::TooManyKeys, "The account has reached the maximum number of management keys.")
        }
        ManagementKeyRefused::Reused => ApiError::new(
            Code::IdempotencyKeyReuse,
            "This Idempotency-Key was used with a different request; choose a new one.",
        ),
    };
    error.map(said).into()
}
