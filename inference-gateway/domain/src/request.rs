//! A checked request, whatever the dialect of its body: the parts that the parsers of all dialects share.
//!
//! No part of a body becomes a tree. Values are borrowed as spelled and checked in place, and the text for an
//! upstream is written in one pass: a single copy of each byte. Types with a prompt have no `Debug`, so that no log can
//! show a prompt.

mod bound;
mod conversation;
mod forward;
mod image;
mod params;
mod places;
mod read;
mod refused;
mod system;
mod tools;

use bytes::Bytes;
use shared::{
    catalog::{ImageUrls, Model, UpstreamKind},
    error::{ApiError, Code},
    tokens::Usage,
};

pub use bound::BYTES_PER_TOKEN;
pub use forward::{Forward, ProgressReports, UpstreamParams};

pub(crate) use bound::{MAX_DEPTH, TooDeep};
pub(crate) use conversation::{Arguments, Conversation, EarlierAnswer, SystemTexts, ToolAnswer};
pub(crate) use forward::Draft;
pub(crate) use image::{FORMATS, image_data, image_url};
pub(crate) use params::{
    AskedEffort, Limit, MAX_STOP_CHARS, MAX_STOPS, MAX_TOKENS, TEMPERATURE, TOP_LOGPROBS, TOP_P, sampling,
    stop_sequence,
};
pub(crate) use places::MessageList;
pub(crate) use read::{ANY_NUMBER, Members, ParamPath, Value};
pub(crate) use tools::{DroppedTools, Function, MAX_NAME, MAX_TOOLS, json_schema, name, unsupported_kind};

pub use crate::answer::MAX_CHOICES;
use crate::answer::Reply;

/// A request with a valid body. The existence and the limits of the model are not checked yet.
pub struct Request {
    /// The requested model.
    pub model: String,
    /// The answer is to be streamed.
    pub stream: bool,
    /// Requested choices, 1 to 8.
    pub n: u64,
    /// The limit that the request sets to each choice.
    pub(crate) limit: Option<Limit>,
    /// The effort of reasoning that the request asks for.
    pub(crate) effort: Option<AskedEffort>,
    /// The form of the answer.
    pub(crate) reply: Reply,
    /// Names of the offered tools that were dropped.
    pub(crate) dropped_tools: DroppedTools,
    /// The forwarded request, without the head's members and the model's extra parameters.
    pub(crate) draft: Draft,
    /// Members that are forwarded only if the model allows: slices of the body.
    pub(crate) others: Vec<(String, Bytes)>,
}

impl Request {
    /// Checks the limits of the model, and completes the request for upstreams.
    pub fn forward(self, model: &Model) -> Result<Forward, ApiError> {
        self.check_served(model)?;
        // Vectors are no tokens.
        let most = if self.reply.is_of_chat() { model.max_output_tokens } else { 0 };
        let max_tokens = self.limit.map(|limit| limit.within(model)).transpose()?;
        let mut draft = self.draft;
        let image_urls = handed_to_some(model, draft.image_need.take())?;
        let is_at = |is: fn(UpstreamKind) -> bool| model.upstreams.iter().any(|upstream| is(upstream.kind));
        if is_at(renders_templates) {
            draft.merge_system_messages()?;
        }
        if is_at(|kind| kind == UpstreamKind::Openai) {
            draft.leave_out_optional();
        }
        if let Some(effort) = self.effort {
            effort.write(model, &mut draft)?;
        }
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
            reply: self.reply,
            dropped_tools: self.dropped_tools.into_header(),
            max_tokens: max_tokens.unwrap_or(most),
            n: self.n,
            image_urls,
            images: draft.shown.images,
            image_tokens: draft.shown.most_of_images(model),
            limited: max_tokens.is_some() || most == 0,
            opening: draft.opening.clone(),
            prompt_bound: draft.shown.bound(model),
            prompt_estimate: draft.shown.estimate(model),
            prompt_least: draft.shown.least(),
            has_tools: draft.shown.has_preamble(),
            may_hide_tokens: draft.may_hide_tokens,
            is_plain: draft.shown.is_plain(),
            places: draft.places.clone(),
            bounds: Usage::of(model.context_window, model.context_window, most.saturating_mul(self.n)),
            rest: draft.finish(),
        })
    }
}

impl Request {
    /// Refuses a model that does not serve this kind of request.
    fn check_served(&self, model: &Model) -> Result<(), ApiError> {
        let (is_served, other) = if self.reply.is_of_chat() {
            (model.serves.chat, "serves embeddings, and no chat")
        } else {
            (model.serves.embeddings, "serves chat, and no embeddings")
        };
        if is_served {
            return Ok(());
        }
        let message = format!("Invalid 'model': the model '{}' {other}.", model.id);
        Err(ApiError::at(Code::UnsupportedValue, "model", message))
    }
}

/// Returns whether the model's own template renders the messages. Many templates refuse a system message that is not the
/// first one; others need it as little.
const fn renders_templates(kind: UpstreamKind) -> bool {
    match kind {
        UpstreamKind::Vllm | UpstreamKind::Sglang | UpstreamKind::LlamaCpp | UpstreamKind::Ollama => true,
        UpstreamKind::Openai | UpstreamKind::Anthropic | UpstreamKind::Builtin => false,
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

#[cfg(test)]
pub(crate) mod tests;
