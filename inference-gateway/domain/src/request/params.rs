//! Bounds and checks of parameters that several dialects have, under names of their own.

use std::ops::RangeInclusive;

use shared::{
    catalog::Model,
    error::{ApiError, Code},
};

use super::{
    forward::Draft,
    read::{Members, Value},
};

/// Output tokens that no request may ask more of; a model's own bound may be lower.
pub(crate) const MAX_TOKENS: i64 = 131_072;
/// Between the likeliest word alone and mere chance.
pub(crate) const TEMPERATURE: RangeInclusive<f64> = 0.0..=2.0;
/// The share of likelihood that is drawn from.
pub(crate) const TOP_P: RangeInclusive<f64> = 0.0..=1.0;
/// Alternatives that may be reported for each token.
pub(crate) const TOP_LOGPROBS: RangeInclusive<i64> = 0..=20;
/// Sequences that may end an answer.
pub(crate) const MAX_STOPS: usize = 4;
/// Characters of a sequence that ends an answer: about a paragraph.
pub(crate) const MAX_STOP_CHARS: usize = 1024;

/// Limit that a request sets to the length of the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Output tokens of each choice.
    pub(crate) tokens: u64,
    /// Name of the parameter that sets the limit.
    pub(crate) name: &'static str,
    /// True if a limit above the model's own is lowered rather than refused, since the dialect makes every request
    /// name a limit.
    pub(crate) is_lowered: bool,
}

impl Limit {
    /// Reads a limit that may be absent.
    pub(crate) fn read(body: &Members<'_, '_>, name: &'static str) -> Result<Option<Self>, ApiError> {
        let Some(value) = body.get(name) else { return Ok(None) };
        Ok(Some(Self { tokens: value.integer(1..=MAX_TOKENS)?.unsigned_abs(), name, is_lowered: false }))
    }

    /// The tokens of this limit, which the model has to allow.
    pub(super) fn within(self, model: &Model) -> Result<u64, ApiError> {
        let Self { tokens, name, is_lowered } = self;
        let most = model.max_output_tokens;
        if tokens <= most || is_lowered {
            return Ok(tokens.min(most));
        }
        let message = format!("Invalid '{name}': must be at most {most} with the model '{}'.", model.id);
        Err(ApiError::at(Code::IntegerAboveMaxValue, name, message))
    }
}

/// Amount of thinking that a request asks for, in the words of the newer dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Little thinking, or none.
    Low,
    /// The model's default.
    Default,
    /// Much thinking.
    High,
}

impl Effort {
    pub(crate) const WORDS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

    /// Reads an effort by its word.
    pub(crate) fn read(value: &Value<'_, '_>) -> Result<Self, ApiError> {
        Ok(match value.one_of(&Self::WORDS)? {
            "none" | "minimal" | "low" => Self::Low,
            "medium" => Self::Default,
            _ => Self::High,
        })
    }

    /// Writes the effort, unless it is the model's default.
    pub(crate) fn write(self, draft: &mut Draft) {
        match self {
            Self::Low => draft.member("reasoning_effort", r#""low""#),
            Self::Default => {}
            Self::High => draft.member("reasoning_effort", r#""high""#),
        }
    }
}

/// Checks and writes temperature and `top_p`, which are of the same bounds in the newer dialects.
pub(crate) fn sampling(members: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    for (name, bounds) in [("temperature", TEMPERATURE), ("top_p", TOP_P)] {
        if let Some(value) = members.get(name) {
            value.decimal(bounds)?;
            draft.member(name, value.raw());
        }
    }
    Ok(())
}

/// Checks a sequence that ends the answer.
pub(crate) fn stop_sequence(value: &Value<'_, '_>) -> Result<(), ApiError> {
    value.filled_string_token()?;
    if value.string()?.chars().count() > MAX_STOP_CHARS {
        let problem = format!("must have at most {MAX_STOP_CHARS} characters");
        return Err(value.error(Code::StringAboveMaxLength, &problem));
    }
    Ok(())
}
