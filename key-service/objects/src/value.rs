//! Values of fields in request bodies, read and checked according to the field's type.

use std::{borrow::Cow, collections::BTreeMap, ops::RangeInclusive};

use shared::{
    calendar::Per,
    error::{ApiError, Code},
    json::{self, Kind as Json, Object, RawValue, elements, invalid_json},
    money::{MoneyError, NanoUsd},
    text::is_control,
    time::Timestamp,
    wire::{
        DefaultField, EVENT_TYPES, Fields, Kind, Limit, MAX_LABEL_CHARS, MAX_LIMIT, MAX_LIMITS, MAX_METADATA,
        MAX_METADATA_NAME_CHARS, MAX_METADATA_VALUE_CHARS, MAX_MODEL_CHARS, MAX_MODELS, MAX_PAYMENT_ID_CHARS,
        Raise, Value,
    },
};

use domain::governed::unknown_group;
use domain::payment::PaymentId;
use domain::webhook::{BadUrl, WebhookUrl};

/// Reads and checks a value. `param` is its path in the body.
pub fn read(param: &str, kind: Kind, raw: &RawValue) -> Result<Value, ApiError> {
    if let Kind::Line { max } = kind {
        return line(param, "a string", max, raw).map(Value::Text);
    }
    if let Kind::Url = kind {
        return url(param, raw).map(Value::Text);
    }
    if let Kind::Word(words) = kind {
        return word(param, words, raw).map(Value::Text);
    }
    if let Kind::Paid = kind {
        return paid(param, raw).map(Value::Amount);
    }
    if let Kind::PaymentId { or_null: false } = kind {
        return payment_id(param, "a string", raw).map(Value::Text);
    }
    if let Kind::Flag = kind {
        expect(param, Json::Bool, "true or false", raw)?;
        return Ok(Value::Flag(raw.get() == "true"));
    }
    if Json::of(raw) == Json::Null {
        return Ok(Value::Null);
    }
    match kind {
        Kind::Line { max } | Kind::ExternalId { max } => external_id(param, max, raw).map(Value::Text),
        Kind::Amount => amount(param, "a number or null", raw).map(Value::Amount),
        Kind::Time => time(param, "a string or null", raw).map(Value::Time),
        Kind::Count { max } => count(param, "an integer or null", 1..=max, raw).map(Value::Count),
        Kind::Limits => limits(param, true, raw),
        Kind::Raise => raise(param, raw).map(Value::Raise),
        Kind::Models => models(param, raw).map(Value::Texts),
        Kind::Metadata => metadata(param, raw).map(Value::Metadata),
        Kind::Group => group(param, raw),
        Kind::KeyDefaults => key_defaults(param, raw).map(Value::KeyDefaults),
        Kind::EventTypes => event_types(param, raw).map(Value::Texts),
        Kind::PaymentId { .. } => payment_id(param, "a string or null", raw).map(Value::Text),
        Kind::Answered(_) | Kind::Url | Kind::Flag | Kind::Paid | Kind::Word(_) => Err(ApiError::internal()),
    }
}

fn word(param: &str, words: &[&str], raw: &RawValue) -> Result<String, ApiError> {
    let given = text(param, "a string", raw)?;
    if words.contains(&&*given) {
        return Ok(given.into_owned());
    }
    let all: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    let message = format!("`{param}` must be one of {}.", all.join(", "));
    Err(ApiError::at(Code::InvalidValue, param, message))
}

fn line(param: &str, expected: &str, max: usize, raw: &RawValue) -> Result<String, ApiError> {
    let text = text(param, expected, raw)?;
    at_most(param, max, &text)?;
    if text.chars().any(is_control) {
        let message =
            format!("`{param}` contains control characters or marks that change the direction of text.");
        return Err(ApiError::at(Code::InvalidValue, param, message));
    }
    Ok(text.into_owned())
}

fn external_id(param: &str, max: usize, raw: &RawValue) -> Result<String, ApiError> {
    let text = line(param, "a string or null", max, raw)?;
    not_empty(param, &text)?;
    Ok(text)
}

fn amount(param: &str, expected: &str, raw: &RawValue) -> Result<NanoUsd, ApiError> {
    let wrong = |code, message: String| ApiError::at(code, param, message);
    let number = number(param, expected, raw)?;
    let below = || wrong(Code::DecimalBelowMinValue, format!("`{param}` must be at least 0."));
    let above = || wrong(Code::DecimalAboveMaxValue, format!("`{param}` must be at most {MAX_LIMIT}."));
    match NanoUsd::parse(number) {
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

/// Reads the amount of a payment.
fn paid(param: &str, raw: &RawValue) -> Result<NanoUsd, ApiError> {
    let wrong = |code, says: &str| ApiError::at(code, param, format!("`{param}` {says}."));
    let below = || wrong(Code::DecimalBelowMinValue, "must be above 0");
    let above = || wrong(Code::DecimalAboveMaxValue, &format!("must be at most {}", NanoUsd::MAX));
    match NanoUsd::parse(number(param, "a number", raw)?) {
        Ok(amount) if amount <= NanoUsd::ZERO => Err(below()),
        Ok(amount) if amount > NanoUsd::MAX => Err(above()),
        Ok(amount) => Ok(amount),
        Err(MoneyError::OutOfRange { negative: true }) => Err(below()),
        Err(MoneyError::OutOfRange { negative: false }) => Err(above()),
        Err(e @ (MoneyError::NotANumber | MoneyError::RoundsToZero)) => {
            Err(wrong(Code::InvalidValue, &e.to_string()))
        }
    }
}

fn payment_id(param: &str, expected: &str, raw: &RawValue) -> Result<String, ApiError> {
    let id = text(param, expected, raw)?;
    at_most(param, MAX_PAYMENT_ID_CHARS, &id)?;
    not_empty(param, &id)?;
    if PaymentId::parse(&id).is_none() {
        let message =
            format!("`{param}` must be printable ASCII, without spaces around it or two spaces in a row.");
        return Err(ApiError::at(Code::InvalidValue, param, message));
    }
    Ok(id.into_owned())
}

fn time(param: &str, expected: &str, raw: &RawValue) -> Result<Timestamp, ApiError> {
    let text = text(param, expected, raw)?;
    Timestamp::parse(&text).ok_or_else(|| {
        let message = format!("`{param}` must be an ISO 8601 date and time, such as 2027-12-31T23:59:59Z.");
        ApiError::at(Code::InvalidValue, param, message)
    })
}

/// Reads an integer within these limits.
pub fn count(
    param: &str,
    expected: &str,
    bounds: RangeInclusive<u64>,
    raw: &RawValue,
) -> Result<u64, ApiError> {
    let token = number(param, expected, raw)?;
    if token.contains(['.', 'e', 'E']) {
        let message = format!("`{param}` must be {expected}, not a decimal number.");
        return Err(ApiError::at(Code::InvalidType, param, message));
    }
    // All characters except the sign are digits. So a number that overflows is too small or too large, depending on its
    // sign. `-0` is 0.
    let is_below = token.starts_with('-') && token.bytes().any(|digit| matches!(digit, b'1'..=b'9'));
    let number = token.trim_start_matches('-').parse().unwrap_or(u64::MAX);
    if is_below || number < *bounds.start() {
        let message = format!("`{param}` must be at least {}.", bounds.start());
        return Err(ApiError::at(Code::IntegerBelowMinValue, param, message));
    }
    if number > *bounds.end() {
        let message = format!("`{param}` must be at most {}.", bounds.end());
        return Err(ApiError::at(Code::IntegerAboveMaxValue, param, message));
    }
    Ok(number)
}

pub fn flag(param: &str, raw: &RawValue) -> Result<bool, ApiError> {
    expect(param, Json::Bool, "true or false", raw)?;
    Ok(raw.get() == "true")
}

/// Reads a list of limits for windows. An empty list removes all of these limits.
fn limits(param: &str, may_be_raised: bool, raw: &RawValue) -> Result<Value, ApiError> {
    let mut limits: Vec<Limit> = Vec::new();
    for (at, raw) in list(param, MAX_LIMITS, raw)?.into_iter().enumerate() {
        let param = format!("{param}[{at}]");
        let limit = limit(&param, may_be_raised, raw)?;
        if limits.iter().any(|before| before.per == limit.per) {
            let message = format!(
                "`{param}.per` repeats `{}`; each window may have only one limit.",
                limit.per.as_str()
            );
            return Err(ApiError::at(Code::InvalidValue, format!("{param}.per"), message));
        }
        limits.push(limit);
    }
    Ok(if limits.is_empty() { Value::Null } else { Value::Limits(limits) })
}

fn limit(param: &str, may_be_raised: bool, raw: &RawValue) -> Result<Limit, ApiError> {
    let known: &[&str] = if may_be_raised { &["amount", "per", "raised"] } else { &["amount", "per"] };
    let members = members(param, "an object", known, raw)?;
    let [amount_param, per_param] = ["amount", "per"].map(|name| format!("{param}.{name}"));
    let amount = amount(&amount_param, "a number", member(&members, "amount", &amount_param)?)?;
    let per = text(&per_param, "a string", member(&members, "per", &per_param)?)?;
    let per = Per::parse(&per).ok_or_else(|| {
        let message = format!("`{per_param}` must be `hour`, `day`, `week` or `month`.");
        ApiError::at(Code::InvalidValue, &per_param, message)
    })?;
    let raised = members.get("raised").filter(|raw| Json::of(raw) != Json::Null);
    let raised = raised.map(|raw| raise(&format!("{param}.raised"), raw)).transpose()?;
    Ok(Limit { raised, ..Limit::new(amount, per) })
}

/// Reads a raise. Whether the raise is allowed depends on the limit and the time. Other code checks that.
fn raise(param: &str, raw: &RawValue) -> Result<Raise, ApiError> {
    let members = members(param, "an object or null", &["amount", "until"], raw)?;
    let [amount_param, until_param] = ["amount", "until"].map(|name| format!("{param}.{name}"));
    let amount = amount(&amount_param, "a number", member(&members, "amount", &amount_param)?)?;
    let until = time(&until_param, "a string", member(&members, "until", &until_param)?)?;
    Ok(Raise { amount, until })
}

/// Reads an object that may have only these members.
fn members<'a>(
    param: &str,
    expected: &str,
    known: &[&str],
    raw: &'a RawValue,
) -> Result<Object<'a>, ApiError> {
    let members = object(param, expected, raw)?;
    if let Some((name, _)) = members.iter().find(|(name, _)| !known.contains(name)) {
        return Err(unknown(&format!("{param}."), name, known.iter().copied()));
    }
    Ok(members)
}

pub(crate) fn member<'a>(members: &Object<'a>, name: &str, param: &str) -> Result<&'a RawValue, ApiError> {
    let missing = || {
        let message = format!("`{param}` is missing.");
        ApiError::at(Code::MissingRequiredParameter, param, message)
    };
    members.get(name).ok_or_else(missing)
}

fn url(param: &str, raw: &RawValue) -> Result<String, ApiError> {
    let url = text(param, "a string", raw)?;
    let code = |bad| match bad {
        BadUrl::TooLong => Code::StringAboveMaxLength,
        BadUrl::Malformed | BadUrl::Number | BadUrl::NotEncrypted => Code::InvalidValue,
    };
    WebhookUrl::parse(&url).map_err(|bad| ApiError::at(code(bad), param, format!("`{param}` {bad}.")))?;
    Ok(url.into_owned())
}

fn event_types(param: &str, raw: &RawValue) -> Result<Vec<String>, ApiError> {
    let types = list(param, EVENT_TYPES.len(), raw)?;
    if types.is_empty() {
        let message = format!("`{param}` is empty; use null to send events of all types.");
        return Err(ApiError::at(Code::EmptyArray, param, message));
    }
    let mut known = Vec::new();
    for (at, raw) in types.into_iter().enumerate() {
        let param = format!("{param}[{at}]");
        let name = text(&param, "a string", raw)?.into_owned();
        if !EVENT_TYPES.contains(&name.as_str()) || known.contains(&name) {
            let message = format!(
                "`{param}` must be a type of event, such as `key.created`, and must not be repeated."
            );
            return Err(ApiError::at(Code::InvalidValue, param, message));
        }
        known.push(name);
    }
    Ok(known)
}

fn models(param: &str, raw: &RawValue) -> Result<Vec<String>, ApiError> {
    let models = list(param, MAX_MODELS, raw)?;
    if models.is_empty() {
        let message = format!(
            "`{param}` is empty; use null to allow all models, or a limit of 0 to allow no requests."
        );
        return Err(ApiError::at(Code::EmptyArray, param, message));
    }
    let model = |(at, raw): (usize, &&RawValue)| {
        let param = format!("{param}[{at}]");
        let id = line(&param, "a string", MAX_MODEL_CHARS, raw)?;
        not_empty(&param, &id)?;
        Ok(id)
    };
    models.iter().enumerate().map(model).collect()
}

fn metadata(param: &str, raw: &RawValue) -> Result<BTreeMap<String, Option<String>>, ApiError> {
    let mut metadata = BTreeMap::new();
    for (name, raw) in object(param, "an object or null", raw)?.iter() {
        at_most(param, MAX_METADATA_NAME_CHARS, name)?;
        not_empty(param, name)?;
        let param = format!("{param}.{name}");
        let value = if Json::of(raw) == Json::Null {
            None
        } else {
            let text = text(&param, "a string or null", raw)?;
            at_most(&param, MAX_METADATA_VALUE_CHARS, &text)?;
            Some(text.into_owned())
        };
        metadata.insert(name.to_owned(), value);
    }
    if metadata.values().flatten().count() > MAX_METADATA {
        let message = format!("`{param}` has more than {MAX_METADATA} members.");
        return Err(ApiError::at(Code::ObjectAboveMaxProperties, param, message));
    }
    Ok(metadata)
}

/// Reads a group's id. A malformed id counts as an unknown group.
fn group(param: &str, raw: &RawValue) -> Result<Value, ApiError> {
    let id = text(param, "a string or null", raw)?.parse();
    id.map(Value::Group).map_err(|_| unknown_group(param))
}

fn key_defaults(param: &str, raw: &RawValue) -> Result<Vec<(DefaultField, Value)>, ApiError> {
    let mut settings = Vec::new();
    for (name, raw) in object(param, "an object or null", raw)?.iter() {
        let names = || DefaultField::settings().map(|field| field.row().name);
        let field = settable::<DefaultField>(name, true);
        let field = field.ok_or_else(|| unknown(&format!("{param}."), name, names()))?;
        let (param, kind) = (format!("{param}.{name}"), field.row().kind);
        // Nothing is spent from key defaults, so their limits cannot be raised.
        let is_limits = matches!(kind, Kind::Limits) && Json::of(raw) != Json::Null;
        let value = if is_limits { limits(&param, false, raw) } else { read(&param, kind, raw) };
        settings.push((field, value?));
    }
    Ok(settings)
}

fn at_most(param: &str, max: usize, text: &str) -> Result<(), ApiError> {
    if text.chars().count() <= max {
        return Ok(());
    }
    let message = format!("`{param}` has more than {max} characters.");
    Err(ApiError::at(Code::StringAboveMaxLength, param, message))
}

fn not_empty(param: &str, text: &str) -> Result<(), ApiError> {
    if text.is_empty() {
        let message = format!("`{param}` has an empty string.");
        return Err(ApiError::at(Code::EmptyString, param, message));
    }
    Ok(())
}

fn list<'a>(param: &str, max: usize, raw: &'a RawValue) -> Result<Vec<&'a RawValue>, ApiError> {
    expect(param, Json::Array, "an array or null", raw)?;
    let values = elements(raw).map_err(|e| invalid_json(&e))?;
    if values.len() > max {
        let message = format!("`{param}` has more than {max} elements.");
        return Err(ApiError::at(Code::ArrayAboveMaxLength, param, message));
    }
    Ok(values)
}

fn object<'a>(param: &str, expected: &str, raw: &'a RawValue) -> Result<Object<'a>, ApiError> {
    expect(param, Json::Object, expected, raw)?;
    Object::from_raw(raw).map_err(|e| invalid_json(&e))
}

fn text<'a>(param: &str, expected: &str, raw: &'a RawValue) -> Result<Cow<'a, str>, ApiError> {
    expect(param, Json::String, expected, raw)?;
    // The only possible error is a lone surrogate, which is well-formed JSON but not valid text.
    json::text(raw).map_err(|e| invalid_json(&e))
}

/// Returns the raw token of a number, which is exact, unlike a float.
fn number<'a>(param: &str, expected: &str, raw: &'a RawValue) -> Result<&'a str, ApiError> {
    expect(param, Json::Number, expected, raw)?;
    Ok(raw.get())
}

fn expect(param: &str, kind: Json, expected: &str, raw: &RawValue) -> Result<(), ApiError> {
    if Json::of(raw) == kind {
        return Ok(());
    }
    let message = format!("`{param}` must be {expected}, not {}.", Json::of(raw).name());
    Err(ApiError::at(Code::InvalidType, param, message))
}

/// Finds the setting with this name, if a request may set it.
pub(crate) fn settable<F: Fields>(name: &str, is_new: bool) -> Option<F> {
    F::settings().find(|field| field.row().name == name && (is_new || !field.row().is_fixed))
}

/// Returns the error for a member that cannot be set. It lists the members that can be set. `place` is the path to the
/// member.
pub fn unknown<'a>(place: &str, name: &str, settable: impl Iterator<Item = &'a str>) -> ApiError {
    let shown: String = name.chars().take(MAX_LABEL_CHARS).collect();
    let mut names: Vec<String> = settable.map(|name| format!("`{name}`")).collect();
    let last = names.pop().unwrap_or_default();
    let message = format!("`{place}{shown}` cannot be set; {} and {last} can.", names.join(", "));
    ApiError::at(Code::UnknownParameter, format!("{place}{shown}"), message)
}
