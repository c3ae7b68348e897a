//! Bounds and checks of parameters that several dialects share under different names.

use std::ops::RangeInclusive;

use raw_json::{Members, Value};
use shared::error::{ApiError, Code};
use shared_catalog::{Effort, Model};

use super::body::Draft;

/// Maximum number of output tokens that a request may ask for. A model's bound may be lower.
pub(crate) const MAX_TOKENS: i64 = 131_072;
/// Bounds of the temperature. With temperature 0, the likeliest token is always chosen.
pub(crate) const TEMPERATURE: RangeInclusive<f64> = 0.0..=2.0;
pub(crate) const TOP_P: RangeInclusive<f64> = 0.0..=1.0;
/// Bounds of the number of alternatives reported for each token.
pub(crate) const TOP_LOGPROBS: RangeInclusive<i64> = 0..=20;
pub(crate) const MAX_STOPS: usize = 4;
/// Maximum length of a stop sequence in characters: about a paragraph.
pub(crate) const MAX_STOP_CHARS: usize = 1024;

/// A request's limit on the length of the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// Output tokens of each choice.
    pub(crate) tokens: u64,
    /// Name of the parameter that sets the limit.
    pub(crate) name: &'static str,
    /// Whether a limit above the model's limit is lowered instead of refused, because the dialect requires a limit in
    /// every request.
    pub(crate) is_lowered: bool,
}

impl Limit {
    /// Reads an optional limit. If it is above the model's limit, the request is refused later.
    pub(crate) fn read(body: &Members<'_, '_>, name: &'static str) -> Result<Option<Self>, ApiError> {
        Self::read_within(body, name, MAX_TOKENS)
    }

    /// Reads an optional limit. If it is above the model's limit, it is lowered later.
    pub(crate) fn read_lowered(body: &Members<'_, '_>, name: &'static str) -> Result<Option<Self>, ApiError> {
        let limit = Self::read_within(body, name, i64::MAX)?;
        Ok(limit.map(|limit| Self { is_lowered: true, ..limit }))
    }

    fn read_within(body: &Members<'_, '_>, name: &'static str, most: i64) -> Result<Option<Self>, ApiError> {
        let Some(value) = body.get(name) else { return Ok(None) };
        Ok(Some(Self { tokens: value.integer(1..=most)?.unsigned_abs(), name, is_lowered: false }))
    }

    /// Returns the limit in tokens, if the model allows it.
    pub(crate) fn within(self, model: &Model) -> Result<u64, ApiError> {
        let Self { tokens, name, is_lowered } = self;
        let most = model.max_output_tokens;
        if tokens <= most || is_lowered {
            return Ok(tokens.min(most));
        }
        let message = format!("Invalid '{name}': must be at most {most} with the model '{}'.", model.id);
        Err(ApiError::at(Code::IntegerAboveMaxValue, name, message))
    }
}

/// Reasoning effort that a request asks for. The model decides later which words it accepts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskedEffort {
    /// The effort; `None` for a word that no model accepts.
    effort: Option<Effort>,
    /// Whether the model must accept exactly this effort. Otherwise the nearest effort that it accepts is used, as in
    /// the newer dialects.
    is_exact: bool,
}

impl AskedEffort {
    /// Name of the member in a chat.
    pub(crate) const NAME: &str = "reasoning_effort";

    /// Reads an effort that the model must accept.
    pub(crate) fn exact(value: &Value<'_, '_>) -> Result<Self, ApiError> {
        Ok(Self { effort: Effort::read(&value.string()?), is_exact: true })
    }

    /// Reads any effort. The nearest that the model accepts is used.
    pub(crate) fn nearest(value: &Value<'_, '_>) -> Result<Self, ApiError> {
        Ok(Self { effort: Effort::read(value.one_of(&Effort::WORDS)?), is_exact: false })
    }

    /// Asks for as little reasoning as the model allows.
    pub(crate) const NONE: Self = Self { effort: Some(Effort::None), is_exact: false };

    /// Returns the effort to send to this model; `None` if the model's default is nearest.
    pub(crate) fn of_model(self, model: &Model) -> Result<Option<Effort>, ApiError> {
        match self.effort {
            Some(effort) if !self.is_exact => Ok(effort.nearest(&model.efforts)),
            Some(effort) if model.efforts.contains(&effort) => Ok(Some(effort)),
            Some(_) | None => Err(Self::refuse(model)),
        }
    }

    fn refuse(model: &Model) -> ApiError {
        let (name, id) = (Self::NAME, &model.id);
        if model.efforts.is_empty() {
            let message = format!("Invalid '{name}': the model '{id}' does not have this setting.");
            return ApiError::at(Code::UnsupportedParameter, name, message);
        }
        let taken: Vec<_> = model.efforts.iter().map(|effort| format!("'{}'", effort.word())).collect();
        let message = format!("Invalid '{name}': must be {} with the model '{id}'.", taken.join(" or "));
        ApiError::at(Code::InvalidValue, name, message)
    }
}

/// Checks and writes temperature and `top_p`. Their bounds are the same in both newer dialects.
pub(crate) fn sampling(members: &Members<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    for (name, bounds) in [("temperature", TEMPERATURE), ("top_p", TOP_P)] {
        if let Some(value) = members.get(name) {
            value.decimal(bounds)?;
            draft.sampling.note(name, &value);
            draft.member(name, value.raw());
        }
    }
    Ok(())
}

pub(crate) fn stop_sequence(value: &Value<'_, '_>) -> Result<(), ApiError> {
    value.filled_string_token()?;
    if value.string()?.chars().count() > MAX_STOP_CHARS {
        let problem = format!("must have at most {MAX_STOP_CHARS} characters");
        return Err(value.error(Code::StringAboveMaxLength, &problem));
    }
    Ok(())
}
