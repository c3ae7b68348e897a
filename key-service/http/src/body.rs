//! Reads request bodies: the settings of an object, which are checked before anything changes.

use std::time::Duration;

use axum::{body::Bytes, extract::Request};
use http::{HeaderMap, HeaderName, HeaderValue};
use shared::{
    error::{ApiError, Code},
    json::parse_object,
    wire::{MAX_BODY_BYTES, MAX_GRACE_SECONDS, MAX_IDEMPOTENCY_KEY_CHARS},
};
use shared_door::http::{read_body, require_json};

use domain::settings::Patch;
use key_service_management::{governor::Governor, rotation::RotationTerms};
use key_service_objects::{
    settings,
    value::{self, unknown},
};

/// Media type of RFC 7396, which every PATCH route accepts.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Header with the client's idempotency key, for requests that create an object or rotate a key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Header of an answer that repeats an earlier request's result.
pub(super) const IDEMPOTENT_REPLAYED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("idempotent-replayed"), HeaderValue::from_static("true"));

/// Reads the settings of a new object. Unknown fields are refused instead of ignored, because a typo must not create a
/// key without a limit or an expiry.
pub(super) async fn read_draft<P: Patch>(request: Request) -> Result<P, ApiError> {
    let json = read_json(request, None).await?;
    settings(&json, true)
}

/// Reads the settings that a request changes.
pub(super) async fn read_patch<P: Patch>(request: Request) -> Result<P, ApiError> {
    let json = read_json(request, Some(MERGE_PATCH)).await?;
    settings(&json, false)
}

/// Reads the idempotency key, if any: 1 to 255 printable ASCII characters. Idempotency keys in requests with a group's
/// management key are separate from the account's other idempotency keys.
pub(super) fn idempotency_key(headers: &HeaderMap, caller: &Governor) -> Result<Option<String>, ApiError> {
    let key = given_idempotency_key(headers)?;
    // The separator is a line feed, which no header can contain.
    let of_group = |key: String| match caller.access.group {
        Some(group) => format!("{group}\n{key}"),
        None if caller.is_operator() => format!("operator\n{key}"),
        None => key,
    };
    Ok(key.map(of_group))
}

/// Returns the path of the collection in which a request creates an object.
pub(super) fn collection_path(request: &Request) -> String {
    request.uri().path().trim_end_matches('/').to_owned()
}

fn given_idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refuse = |code, message| Err(ApiError::at(code, "Idempotency-Key", message));
    if values.next().is_some() {
        return refuse(Code::InvalidValue, "The Idempotency-Key header is given more than once.");
    }
    match value.to_str() {
        Ok("") => refuse(Code::EmptyString, "The Idempotency-Key header is empty."),
        Ok(key) if key.len() > MAX_IDEMPOTENCY_KEY_CHARS => {
            refuse(Code::StringAboveMaxLength, "The Idempotency-Key header has more than 255 characters.")
        }
        Ok(key) if !key.contains('\t') => Ok(Some(key.to_owned())),
        Ok(_) | Err(_) => {
            refuse(Code::InvalidValue, "The Idempotency-Key header must be printable ASCII characters.")
        }
    }
}

/// Reads the settings of a rotation. Without a body, the defaults apply.
pub(super) async fn read_rotation(request: Request) -> Result<RotationTerms, ApiError> {
    let (bytes, mut terms) = (read_json(request, None).await?, RotationTerms::default());
    if bytes.is_empty() {
        return Ok(terms);
    }
    for (name, raw) in parse_object(&bytes)?.iter() {
        match name {
            "grace_seconds" => {
                let seconds = value::count(name, "an integer", 0..=MAX_GRACE_SECONDS, raw)?;
                terms.grace = Duration::from_secs(seconds);
            }
            "force" => terms.is_forced = value::flag(name, raw)?,
            _ => return Err(unknown("", name, ["grace_seconds", "force"].into_iter())),
        }
    }
    Ok(terms)
}

async fn read_json(request: Request, also: Option<&str>) -> Result<Bytes, ApiError> {
    let (head, body) = request.into_parts();
    require_json(&head.headers, also)?;
    read_body(&head.headers, body, MAX_BODY_BYTES).await
}
