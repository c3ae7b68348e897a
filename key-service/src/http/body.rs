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
    wire::{
        Field, KeyField, Kind as FieldKind, MAX_IDEMPOTENCY_KEY_CHARS, MAX_LABEL_CHARS, MAX_LIMIT, Value,
    },
};

use domain::key::KeyPatch;

/// Largest body in bytes. The largest sensible body, a label of 80 escaped code points, takes about 1 KiB.
const MAX_BODY: usize = 64 << 10;

/// Content type of RFC 7396, accepted by every PATCH route.
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Header with the client's name for this attempt to make a key.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Reads the settings of the key that a client asks for.
pub(super) async fn read_draft(request: Request) -> Result<KeyPatch, ApiError> {
    read(request, None).await
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

/// Reads the settings of a key, which are the same in a draft and in a patch. An unknown field is refused, not ignored: a
/// typo must not make a key without limit or expiry.
async fn read(request: Request, also: Option<&str>) -> Result<KeyPatch, ApiError> {
    let (head, body) = request.into_parts();
    require_json(&head.headers, also)?;
    let bytes = read_body(&head.headers, body, MAX_BODY).await?;
    let mut patch = KeyPatch::default();
    for (name, raw) in parse_object(&bytes)?.iter() {
        let field = KeyField::ALL.iter().find(|field| field.row().name == name && field.row().is_setting());
        let Some(field) = field else { return Err(unknown(name)) };
        if !patch.set(*field, value(&field.row(), raw)?) {
            tracing::error!(name, "a setting's value has another type than its row says");
            return Err(ApiError::internal());
        }
    }
    Ok(patch)
}

fn unknown(name: &str) -> ApiError {
    let shown: String = name.chars().take(MAX_LABEL_CHARS).collect();
    let settings = KeyField::ALL.iter().map(|field| field.row()).filter(|field| field.is_setting());
    let mut names: Vec<String> = settings.map(|field| format!("`{}`", field.name)).collect();
    let last = names.pop().unwrap_or_default();
    let message = format!("`{shown}` cannot be set; {} and {last} can.", names.join(", "));
    ApiError::at(Code::UnknownParameter, shown, message)
}

/// Reads and checks the value of a field.
fn value(field: &Field, raw: &RawValue) -> Result<Value, ApiError> {
    let name = field.name;
    let is_null = Kind::of(raw) == Kind::Null;
    match field.kind {
        FieldKind::Line { max } => line(name, max, raw).map(Value::Text),
        FieldKind::Amount | FieldKind::Time if is_null => Ok(Value::Null),
        FieldKind::Amount => amount(name, raw).map(Value::Amount),
        FieldKind::Time => time(name, raw).map(Value::Time),
        FieldKind::Answered(_) => Err(unknown(name)),
    }
}

fn line(param: &str, max: usize, value: &RawValue) -> Result<String, ApiError> {
    let text = text(param, "a string", value)?;
    if text.chars().count() > max {
        let message = format!("`{param}` has more than {max} characters.");
        return Err(ApiError::at(Code::StringAboveMaxLength, param, message));
    }
    if text.chars().any(is_control) {
        let message = format!("`{param}` has control characters, or marks that turn the direction of text.");
        return Err(ApiError::at(Code::InvalidValue, param, message));
    }
    Ok(text.into_owned())
}

/// Reads an amount from the raw token, exact where a float would not be.
fn amount(param: &str, value: &RawValue) -> Result<NanoUsd, ApiError> {
    let wrong = |code, message: String| ApiError::at(code, param, message);
    if Kind::of(value) != Kind::Number {
        return Err(wrong_type(param, "a number or null", value));
    }
    let below = || wrong(Code::DecimalBelowMinValue, format!("`{param}` must be at least 0."));
    let above = || wrong(Code::DecimalAboveMaxValue, format!("`{param}` must be at most {MAX_LIMIT}."));
    match NanoUsd::parse(value.get()) {
        Ok(amount) if amount < NanoUsd::ZERO => Err(below()),
        Ok(amount) if amount > MAX_LIMIT => Err(above()),
        Ok(amount) => Ok(amount),
        Err(MoneyError::OutOfRange { negative: true }) => Err(below()),
        Err(MoneyError::OutOfRange { negative: false }) => Err(above()),
        Err(e @ (MoneyError::NotANumber | MoneyError::RoundsToZero)) => {
            Err(wrong(Code::InvalidValue, format!("`{param}` {e}.")))
        }
    }
}

fn time(param: &str, value: &RawValue) -> Result<Timestamp, ApiError> {
    let text = text(param, "a string or null", value)?;
    Timestamp::parse(&text).ok_or_else(|| {
        let message = format!("`{param}` must be an ISO 8601 date and time, such as 2027-12-31T23:59:59Z.");
        ApiError::at(Code::InvalidValue, param, message)
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
