//! Fields of a key in a request body, checked before anything changes.

use std::borrow::Cow;

use axum::extract::Request;
use http::{HeaderMap, HeaderName};
use shared::{
    error::{ApiError, Code},
    json::{self, Kind, RawValue, invalid_json, parse_object},
    money::{MoneyError, NanoUsd},
    process::http::{read_body, require_json},
    text::is_control,
    time::Timestamp,
    wire::{MAX_IDEMPOTENCY_KEY_CHARS, MAX_LABEL_CHARS, MAX_LIMIT},
};

use crate::management::KeyDraft;
use domain::key::KeyPatch;

/// Largest body in bytes. The largest sensible body, a label of 80 escaped code points, takes about 1 KiB.
const MAX_BODY: usize = 64 << 10;

/// Content type of RFC 7396, accepted by every PATCH route.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Header with the client's name for this attempt to make a key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Reads the key that a client asks for.
pub(super) async fn read_draft(request: Request) -> Result<KeyDraft, ApiError> {
    read(request, None).await.map(KeyDraft::from)
}

/// Reads the change that a client asks for.
pub(super) async fn read_patch(request: Request) -> Result<KeyPatch, ApiError> {
    read(request, Some(MERGE_PATCH)).await
}

/// Reads the idempotency key, if any: 1 to 255 printable ASCII characters.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
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

/// Reads the value of a field into the change.
type FieldReader = fn(&mut KeyPatch, &RawValue) -> Result<(), ApiError>;

/// Fields that callers may set. A test compares the API's description with these.
const FIELDS: [(&str, FieldReader); 3] = [
    ("label", |patch, value| {
        patch.label = Some(label(value)?);
        Ok(())
    }),
    ("limit", |patch, value| {
        patch.limit = Some(unless_null(value, limit)?);
        Ok(())
    }),
    ("expires_at", |patch, value| {
        patch.expires_at = Some(unless_null(value, expires_at)?);
        Ok(())
    }),
];

/// Reads the fields of a key, which are the same in a draft and in a patch. An unknown field is refused, not ignored: a
/// typo must not make a key without limit or expiry.
async fn read(request: Request, also: Option<&str>) -> Result<KeyPatch, ApiError> {
    let (head, body) = request.into_parts();
    require_json(&head.headers, also)?;
    let bytes = read_body(&head.headers, body, MAX_BODY).await?;
    let mut fields = KeyPatch::default();
    for (name, value) in parse_object(&bytes)?.iter() {
        let Some((_, read)) = FIELDS.iter().find(|(field, _)| *field == name) else {
            let shown: String = name.chars().take(MAX_LABEL_CHARS).collect();
            let message = format!("`{shown}` cannot be set; `label`, `limit` and `expires_at` can.");
            return Err(ApiError::at(Code::UnknownParameter, shown, message));
        };
        read(&mut fields, value)?;
    }
    Ok(fields)
}

fn unless_null<T>(
    value: &RawValue,
    read: impl Fn(&RawValue) -> Result<T, ApiError>,
) -> Result<Option<T>, ApiError> {
    match Kind::of(value) {
        Kind::Null => Ok(None),
        Kind::Bool | Kind::Number | Kind::String | Kind::Array | Kind::Object => read(value).map(Some),
    }
}

fn label(value: &RawValue) -> Result<String, ApiError> {
    let text = text("label", "a string", value)?;
    if text.chars().count() > MAX_LABEL_CHARS {
        let message = format!("`label` has more than {MAX_LABEL_CHARS} characters.");
        return Err(ApiError::at(Code::StringAboveMaxLength, "label", message));
    }
    if text.chars().any(is_control) {
        return Err(ApiError::at(
            Code::InvalidValue,
            "label",
            "`label` has control characters, or marks that turn the direction of text.",
        ));
    }
    Ok(text.into_owned())
}

/// Reads an amount from the raw token, exact where a float would not be.
fn limit(value: &RawValue) -> Result<NanoUsd, ApiError> {
    let wrong = |code, message: String| ApiError::at(code, "limit", message);
    if Kind::of(value) != Kind::Number {
        return Err(wrong_type("limit", "a number or null", value));
    }
    let below = || wrong(Code::DecimalBelowMinValue, "`limit` must be at least 0.".into());
    let above = || wrong(Code::DecimalAboveMaxValue, format!("`limit` must be at most {MAX_LIMIT}."));
    match NanoUsd::parse(value.get()) {
        Ok(limit) if limit < NanoUsd::ZERO => Err(below()),
        Ok(limit) if limit > MAX_LIMIT => Err(above()),
        Ok(limit) => Ok(limit),
        Err(MoneyError::OutOfRange { negative: true }) => Err(below()),
        Err(MoneyError::OutOfRange { negative: false }) => Err(above()),
        Err(e @ (MoneyError::NotANumber | MoneyError::RoundsToZero)) => {
            Err(wrong(Code::InvalidValue, format!("`limit` {e}.")))
        }
    }
}

fn expires_at(value: &RawValue) -> Result<Timestamp, ApiError> {
    let text = text("expires_at", "a string or null", value)?;
    Timestamp::parse(&text).ok_or_else(|| {
        let message = "`expires_at` must be an ISO 8601 date and time, such as 2027-12-31T23:59:59Z.";
        ApiError::at(Code::InvalidValue, "expires_at", message)
    })
}

fn text<'a>(param: &str, expected: &str, value: &'a RawValue) -> Result<Cow<'a, str>, ApiError> {
    if Kind::of(value) != Kind::String {
        return Err(wrong_type(param, expected, value));
    }
    // The remaining error is half of a surrogate pair: well-formed JSON that is not text.
    json::text(value).map_err(|e| invalid_json(&e))
}

fn wrong_type(param: &str, expected: &str, value: &RawValue) -> ApiError {
    let message = format!("`{param}` must be {expected}, not {}.", Kind::of(value).name());
    ApiError::at(Code::InvalidType, param, message)
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, SchemaGenerator};
    use shared::wire::KeyFields;

    use super::*;

    #[test]
    fn the_fields_that_are_taken_are_those_that_are_described() {
        let mut generator = SchemaGenerator::default();
        let mut taken = FIELDS.map(|(name, _)| name.to_owned());
        taken.sort();
        for schema in
            [KeyFields::<true>::json_schema(&mut generator), KeyFields::<false>::json_schema(&mut generator)]
        {
            let mut described: Vec<String> =
                schema.as_value()["properties"].as_object().unwrap().keys().cloned().collect();
            described.sort();
            assert_eq!(described, taken);
        }
    }
}
