//! Scalar parameters: their checks and bounds, and how they are passed to the upstream.

use std::ops::RangeInclusive;

use raw_json::{Members, Value};
use reply::MAX_CHOICES;
use shared::{
    error::{ApiError, Code},
    json::Kind,
};

use crate::draft::{Draft, Limit, MAX_STOPS, TEMPERATURE, TOP_LOGPROBS, TOP_P, stop_sequence};

/// Bounds of the penalties on repeated tokens.
pub(super) const PENALTY: RangeInclusive<f64> = -2.0..=2.0;
/// Bounds of the bias on a token.
pub(super) const BIAS: RangeInclusive<f64> = -100.0..=100.0;
/// Makes tokens likelier, even ones that are half a character, which servers never show.
const BIAS_NAME: &str = "logit_bias";
/// Maximum length in bytes of a parameter that is passed on: enough for a bias with as many tokens as an object may
/// have members.
const MAX_PASSED_ON_BYTES: usize = 128 << 10;
/// Bytes of each such parameter that do not count as prompt: enough for numbers and names.
const FREE_BYTES: usize = 64;
/// Maximum number of kinds of output in a list, more than any API has.
const MAX_MODALITIES: usize = 16;

/// Checks a value. Returns what is wrong with it.
type Check = fn(&Value<'_, '_>) -> Result<(), ApiError>;

/// The checks of the parameters that are passed on unchanged.
pub(super) const PASSED_ON: [(&str, Check); 10] = [
    ("temperature", |value| value.decimal(TEMPERATURE)),
    ("top_p", |value| value.decimal(TOP_P)),
    ("frequency_penalty", |value| value.decimal(PENALTY)),
    ("presence_penalty", |value| value.decimal(PENALTY)),
    ("seed", |value| value.integer(i64::MIN..=i64::MAX).map(drop)),
    ("n", |value| value.integer(1..=i64::from(MAX_CHOICES)).map(drop)),
    ("logprobs", |value| value.boolean().map(drop)),
    ("top_logprobs", |value| value.integer(TOP_LOGPROBS).map(drop)),
    ("stop", stop),
    (BIAS_NAME, logit_bias),
];

/// Returns whether the parameter is passed on to upstreams.
pub(super) fn is_passed_on(name: &str) -> bool {
    PASSED_ON.iter().any(|(known, _)| *known == name)
}

/// Checks and writes the parameters that are passed on.
pub(super) fn pass_on(body: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    for (name, check) in PASSED_ON {
        if let Some(value) = body.get(name) {
            check(&value)?;
            // An empty bias has no effect, and some servers refuse the name.
            if name == BIAS_NAME && value.object()?.iter().next().is_none() {
                continue;
            }
            if value.raw().len() > MAX_PASSED_ON_BYTES {
                let problem = format!("has more than {MAX_PASSED_ON_BYTES} bytes");
                return Err(value.error(Code::InvalidValue, &problem));
            }
            if value.raw().len() > FREE_BYTES {
                draft.shown.passed_on(value.raw());
            }
            draft.sampling.note(name, &value);
            draft.member(name, value.raw());
            draft.may_hide_tokens |= name == BIAS_NAME;
        }
    }
    let logprobs = body.get("logprobs").is_some_and(|value| value.raw() == "true");
    match body.get("top_logprobs") {
        Some(value) if !logprobs => {
            Err(value.error(Code::InvalidValue, "is only allowed with 'logprobs' set to true"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Reads `max_tokens`, or its alias `max_completion_tokens`.
pub(super) fn limit(body: &Members<'_, '_>) -> Result<Option<Limit>, ApiError> {
    let (limit, alias) = (Limit::read(body, "max_tokens")?, Limit::read(body, "max_completion_tokens")?);
    match (limit, alias) {
        (Some(limit), Some(alias)) if limit.tokens != alias.tokens => {
            let message = "'max_tokens' and 'max_completion_tokens' are the same parameter, and differ.";
            Err(ApiError::at(Code::InvalidValue, alias.name, message))
        }
        (limit, alias) => Ok(limit.or(alias)),
    }
}

/// Reads `n`. It is checked again with the parameters that are passed on.
pub(super) fn choices(body: &Members<'_, '_>) -> Result<u64, ApiError> {
    body.get("n").map_or(Ok(1), |n| n.integer(1..=i64::from(MAX_CHOICES)).map(i64::unsigned_abs))
}

/// Reads `stream`, and `include_usage` of the stream's options.
pub(super) fn stream(body: &Members<'_, '_>) -> Result<(bool, bool), ApiError> {
    let stream = body.get("stream").map_or(Ok(false), |value| value.boolean())?;
    let Some(options) = body.get("stream_options") else { return Ok((stream, false)) };
    let include_usage = options.object()?.get("include_usage").map_or(Ok(false), |value| value.boolean())?;
    if !stream {
        return Err(options.error(Code::InvalidValue, "is only allowed with 'stream' set to true"));
    }
    Ok((stream, include_usage))
}

/// Refuses parameters that are known but not supported, rather than ignoring them.
pub(super) fn refuse_unsupported(body: &Members<'_, '_>) -> Result<(), ApiError> {
    let unsupported = [
        ("functions", "is not supported; use 'tools'"),
        ("function_call", "is not supported; use 'tools' and 'tool_choice'"),
        ("audio", "audio is not supported"),
    ];
    for (name, problem) in unsupported {
        if let Some(value) = body.get(name) {
            return Err(value.error(Code::UnsupportedParameter, problem));
        }
    }
    let Some(modalities) = body.get("modalities") else { return Ok(()) };
    modalities.each(MAX_MODALITIES, |modality| match &*modality.string()? {
        "text" => Ok(()),
        _ => Err(modality.error(Code::UnsupportedValue, "the only supported output is 'text'")),
    })
}

fn stop(value: &Value<'_, '_>) -> Result<(), ApiError> {
    match value.kind() {
        Kind::String => stop_sequence(value),
        Kind::Array => value.each(MAX_STOPS, |stop| stop_sequence(&stop)),
        Kind::Null | Kind::Bool | Kind::Number | Kind::Object => {
            Err(value.wrong_type("a string or an array of strings"))
        }
    }
}

fn logit_bias(value: &Value<'_, '_>) -> Result<(), ApiError> {
    // Token ids have at most ten digits, and a name of digits is safe to repeat in an error.
    let is_token_id = |name: &str| (1..=10).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_digit());
    for (name, bias) in value.object()?.iter() {
        if !is_token_id(name) {
            return Err(value.error(Code::InvalidValue, "its names must be integer token ids"));
        }
        bias.decimal(BIAS)?;
    }
    Ok(())
}
