//! Request bodies: settings of an object, checked before anything changes.

mod value;

pub(crate) use self::value::read as value;

use std::time::Duration;

use axum::{body::Bytes, extract::Request};
use http::{HeaderMap, HeaderName};
use shared::{
    error::{ApiError, Code},
    json::{Object, RawValue, parse_object},
    wire::{Fields, MAX_BODY_BYTES, MAX_GRACE_SECONDS, MAX_IDEMPOTENCY_KEY_CHARS, MAX_LABEL_CHARS},
};
use shared_door::http::{read_body, require_json};

use domain::settings::Patch;
use key_service_management::{governor::Governor, rotation::RotationTerms};

/// Content type of RFC 7396, accepted by every PATCH route.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Header with the client's name for this attempt to make an object, or to rotate a key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Reads the settings of the object that a client asks for.
pub(super) async fn read_draft<P: Patch>(request: Request) -> Result<P, ApiError> {
    read(request, None, true).await
}

/// Reads the change that a client asks for.
pub(super) async fn read_patch<P: Patch>(request: Request) -> Result<P, ApiError> {
    read(request, Some(MERGE_PATCH), false).await
}

/// Reads the idempotency key, if any: 1 to 255 printable ASCII characters. Those of management keys of a group are apart
/// from all others of the account.
pub(super) fn idempotency_key(headers: &HeaderMap, caller: &Governor) -> Result<Option<String>, ApiError> {
    let key = given_idempotency_key(headers)?;
    // No header has a line feed.
    let of_group = |key: String| match caller.access.group {
        Some(group) => format!("{group}\n{key}"),
        None => key,
    };
    Ok(key.map(of_group))
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

/// Reads the terms of a rotation. No body at all asks for the defaults.
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

/// Reads settings. An unknown field is refused, not ignored: a typo must not make a key without limit or expiry.
async fn read<P: Patch>(request: Request, also: Option<&str>, is_new: bool) -> Result<P, ApiError> {
    settings(&read_json(request, also).await?, is_new)
}

async fn read_json(request: Request, also: Option<&str>) -> Result<Bytes, ApiError> {
    let (head, body) = request.into_parts();
    require_json(&head.headers, also)?;
    read_body(&head.headers, body, MAX_BODY_BYTES).await
}

/// Reads settings from JSON, of a new object or of a change.
pub(crate) fn settings<P: Patch>(json: &[u8], is_new: bool) -> Result<P, ApiError> {
    let object = parse_object(json)?;
    let patch = settings_among(object.iter(), is_new)?;
    if is_new {
        require::<P::Field>(&object)?;
    }
    Ok(patch)
}

/// Reads settings from members of an object.
pub(crate) fn settings_among<'a, P: Patch>(
    members: impl Iterator<Item = (&'a str, &'a RawValue)>,
    is_new: bool,
) -> Result<P, ApiError> {
    let mut patch = P::default();
    for (name, raw) in members {
        let Some(field) = settable::<P::Field>(name, is_new) else {
            let names = P::Field::settings().map(Fields::row).filter(|row| is_new || !row.is_fixed);
            return Err(unknown("", name, names.map(|row| row.name)));
        };
        if !patch.set(field, value::read(name, field.row().kind, raw)?) {
            tracing::error!(name, "a setting's value has another type than its row says");
            return Err(ApiError::internal());
        }
    }
    Ok(patch)
}

/// Refuses an object without a field that a new one needs.
fn require<F: Fields>(object: &Object<'_>) -> Result<(), ApiError> {
    let required = F::settings().map(Fields::row).filter(|row| row.is_required);
    match required.map(|row| row.name).find(|name| object.get(name).is_none()) {
        None => Ok(()),
        Some(name) => {
            let message = format!("`{name}` is missing.");
            Err(ApiError::at(Code::MissingRequiredParameter, name, message))
        }
    }
}

/// The setting of this name, if requests may set it.
fn settable<F: Fields>(name: &str, is_new: bool) -> Option<F> {
    F::settings().find(|field| field.row().name == name && (is_new || !field.row().is_fixed))
}

/// The error for a member that cannot be set, with those that can. `place` is the path before the name.
fn unknown<'a>(place: &str, name: &str, settable: impl Iterator<Item = &'a str>) -> ApiError {
    let shown: String = name.chars().take(MAX_LABEL_CHARS).collect();
    let mut names: Vec<String> = settable.map(|name| format!("`{name}`")).collect();
    let last = names.pop().unwrap_or_default();
    let message = format!("`{place}{shown}` cannot be set; {} and {last} can.", names.join(", "));
    ApiError::at(Code::UnknownParameter, format!("{place}{shown}"), message)
}
