//! A request for embeddings: from received bytes to a checked request.

mod schema;

use bytes::Bytes;
use raw_json::{ANY_NUMBER, Members, Value};
use reply::Reply;
use shared::{
    error::{ApiError, Code},
    json::Kind,
};

pub use schema::EmbeddingsRequest;

use crate::{
    checked::Request,
    draft::Draft,
    names::{caller, dropped::DroppedNames},
};
use schema::{ENCODINGS, MAX_DIMENSIONS, MAX_PROMPTS};

/// Parses the body of a request. The error names the first fault and its location.
pub fn parse(body: &Bytes) -> Result<Request, ApiError> {
    let members = Members::of_body(body)?;
    let model = members.require("model")?.string()?.into_owned();
    let mut draft = Draft::new(body.len());
    if let Some(encoding) = members.get("encoding_format") {
        encoding.one_of(&ENCODINGS)?;
        draft.member("encoding_format", encoding.raw());
    }
    if let Some(dimensions) = members.get("dimensions") {
        dimensions.integer(1..=MAX_DIMENSIONS)?;
        draft.member("dimensions", dimensions.raw());
    }
    let input = members.require("input")?;
    count(&input, &mut draft)?;
    draft.member("input", input.raw());
    Ok(Request {
        model,
        stream: false,
        n: 1,
        limit: None,
        effort: None,
        user: caller::user(&members),
        reply: Reply::Embeddings,
        least_output: 1,
        dropped_tools: DroppedNames::default(),
        dropped_members: DroppedNames::default(),
        others: Vec::new(),
        passage: None,
        draft,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    /// A text, which is one prompt.
    Text,
    /// A token. All tokens together form the only prompt.
    Token,
    /// A list of tokens, which is one prompt.
    Tokens,
}

impl Element {
    fn of(value: &Value<'_, '_>) -> Result<Self, ApiError> {
        match value.kind() {
            Kind::String => Ok(Self::Text),
            Kind::Number => Ok(Self::Token),
            Kind::Array => Ok(Self::Tokens),
            Kind::Null | Kind::Bool | Kind::Object => {
                Err(value.wrong_type("a string, a token, or an array of tokens"))
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Text => "a string",
            Self::Token => "a token",
            Self::Tokens => "an array of tokens",
        }
    }
}

/// Checks and counts the prompts: a text, a list of tokens, or a list of one of these.
fn count(input: &Value<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    if input.kind() == Kind::String {
        return text(input, draft);
    }
    let (mut prompts, mut first) = (0, None);
    input.each(ANY_NUMBER, |value| {
        let element = Element::of(&value)?;
        let wanted = *first.get_or_insert(element);
        if element != wanted {
            return Err(value.wrong_type(&format!("{} like the first element", wanted.name())));
        }
        prompts += 1;
        if prompts > MAX_PROMPTS && element != Element::Token {
            let problem = format!("must have at most {MAX_PROMPTS} elements");
            return Err(input.error(Code::ArrayAboveMaxLength, &problem));
        }
        match element {
            Element::Text => text(&value, draft),
            Element::Token => token(&value, draft),
            Element::Tokens => {
                draft.shown.message();
                value.each(ANY_NUMBER, |value| token(&value, draft))
            }
        }
    })
}

fn text(value: &Value<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    let token = value.filled_string_token()?;
    draft.shown.message();
    draft.shown.text(token);
    draft.shown.kept(token);
    Ok(())
}

fn token(value: &Value<'_, '_>, draft: &mut Draft) -> Result<(), ApiError> {
    value.integer(0..=i64::from(u32::MAX))?;
    draft.shown.token();
    Ok(())
}

#[cfg(test)]
mod tests;
