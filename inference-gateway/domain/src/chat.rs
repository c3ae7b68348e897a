//! A chat request: from received bytes to a checked request.
//!
//! No part of the body becomes a tree. Values are borrowed as spelled and checked in place, and the text for an
//! upstream is written in one pass: a single copy of each byte. Types with a prompt have no `Debug`, so that no log can
//! show a prompt.

mod bound;
mod forward;
mod image;
mod messages;
mod params;
mod read;
mod schema;
mod tools;

use bytes::Bytes;
use shared::{
    catalog::{ImageUrls, Model},
    error::{ApiError, Code},
    json::Kind,
    tokens::Usage,
};

pub use bound::BYTES_PER_TOKEN;
pub use forward::{Forward, ProgressReports, UpstreamParams};
pub use params::MAX_CHOICES;
pub use schema::ChatRequest;

use bound::{MAX_DEPTH, TooDeep};
use forward::Draft;
use params::Limit;
use read::Members;

/// Members that are parsed here and written anew, if at all. A model's extra parameters can have none of these names.
const READ_HERE: [&str; 14] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "functions",
    "function_call",
    "audio",
    "modalities",
];

/// A request with a valid body. The existence and the limits of the model are not checked yet.
pub struct Chat {
    /// The requested model.
    pub model: String,
    /// The answer is to be streamed.
    pub stream: bool,
    /// True if the stream is to end with usage.
    pub include_usage: bool,
    /// Requested output tokens of each choice, 1 to 131,072.
    pub max_tokens: Option<u64>,
    /// Requested choices, 1 to 8.
    pub n: u64,
    limit: Option<Limit>,
    /// The forwarded request, without the head's members and the model's extra parameters.
    draft: Draft,
    /// Members that are forwarded only if the model allows: slices of the body.
    others: Vec<(String, Bytes)>,
}

impl Chat {
    /// Parses the body of a request. The error names the first fault and the fault's place.
    pub fn parse(body: &Bytes) -> Result<Self, ApiError> {
        let members = Members::of_body(body)?;
        let model = members.require("model")?.string()?.into_owned();
        params::refuse_unsupported(&members)?;
        let (stream, include_usage) = params::stream(&members)?;
        let limit = params::limit(&members)?;
        let n = params::choices(&members)?;
        let mut draft = Draft::new(body.len());
        params::pass_on(&members, &mut draft)?;
        tools::tools(&members, &mut draft)?;
        tools::response_format(&members, &mut draft)?;
        messages::messages(&members.require("messages")?, &mut draft)?;
        Ok(Self {
            model,
            stream,
            include_usage,
            max_tokens: limit.map(|limit| limit.tokens),
            n,
            limit,
            others: others(&members, body),
            draft,
        })
    }

    /// Checks the limits of the model, and completes the request for upstreams.
    pub fn forward(self, model: &Model) -> Result<Forward, ApiError> {
        if !model.serves.chat {
            let message =
                format!("Invalid 'model': the model '{}' serves embeddings, and no chat.", model.id);
            return Err(ApiError::at(Code::UnsupportedValue, "model", message));
        }
        if let Some(Limit { tokens, name }) = self.limit
            && tokens > model.max_output_tokens
        {
            let most = model.max_output_tokens;
            let message = format!("Invalid '{name}': must be at most {most} with the model '{}'.", model.id);
            return Err(ApiError::at(Code::IntegerAboveMaxValue, name, message));
        }
        let mut draft = self.draft;
        let image_urls = handed_to_some(model, draft.image_need.take())?;
        for name in &model.extra_params {
            if let Some((_, json)) = self.others.iter().find(|(other, _)| other == name) {
                let json = String::from_utf8_lossy(json);
                // Templates may include such parameters in the prompt: most are arguments of the template itself.
                draft.shown.json(&json).map_err(|TooDeep| {
                    let message = format!("Invalid '{name}': is nested deeper than {MAX_DEPTH} levels.");
                    ApiError::at(Code::InvalidValue, name, message)
                })?;
                draft.push(&format!(",{}:{json}", serde_json::Value::from(name.as_str())));
            }
        }
        Ok(Forward {
            stream: self.stream,
            include_usage: self.include_usage,
            max_tokens: self.max_tokens.unwrap_or(model.max_output_tokens),
            n: self.n,
            image_urls,
            images: draft.shown.images,
            image_tokens: draft.shown.most_of_images(model),
            limited: self.max_tokens.is_some(),
            opening: draft.opening.clone(),
            prompt_bound: draft.shown.bound(model),
            prompt_estimate: draft.shown.estimate(model),
            prompt_least: draft.shown.least(),
            has_tools: draft.shown.has_preamble(),
            is_plain: draft.shown.is_plain(),
            bounds: Usage::of(
                model.context_window,
                model.context_window,
                model.max_output_tokens.saturating_mul(self.n),
            ),
            rest: draft.finish(),
        })
    }
}

/// Refuses images that no upstream of the model may be handed; returns the kind of image URLs that an upstream has to
/// take.
fn handed_to_some(model: &Model, need: Option<(ImageUrls, String)>) -> Result<ImageUrls, ApiError> {
    let Some((need, place)) = need else { return Ok(ImageUrls::Data) };
    let most = model.upstreams.iter().map(|upstream| upstream.image_urls).max().unwrap_or_default();
    if need <= most {
        return Ok(need);
    }
    let problem = match most {
        ImageUrls::Data => "this model takes images as data URLs only",
        ImageUrls::Https | ImageUrls::Any => {
            "this model takes images as data URLs, and from https addresses of public hosts spelled plainly"
        }
    };
    Err(ApiError::at(Code::InvalidValue, place.clone(), format!("Invalid '{place}': {problem}.")))
}

/// Lists the members that are not parsed here, without `null` members.
fn others(members: &Members<'_, '_>, body: &Bytes) -> Vec<(String, Bytes)> {
    let others = members.iter().filter(|(name, value)| {
        value.kind() != Kind::Null && !READ_HERE.contains(name) && !params::is_passed_on(name)
    });
    others.map(|(name, value)| (name.to_owned(), body.slice_ref(value.raw().as_bytes()))).collect()
}

#[cfg(test)]
mod tests;
