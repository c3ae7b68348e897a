//! The request for upstreams: its finished bodies, and what is known about it.

use bytes::Bytes;
use reply::{Reply, carried::ServerId};
use shared::{
    generation::{ModelApi, Origin},
    ids::RequestId,
    tokens::Usage,
};
use shared_catalog::{ImageUrls, Upstream, UpstreamApi};
use upstream_error::RefusedMember;

use super::{
    count::CountBody,
    form::{Bodies, BodyForm, BodyPieces, open_system},
    params::{ProgressReports, UpstreamParams},
    refusals,
};
use crate::{draft::RefusablePlaces, sampled::Sampling};

/// A checked request, ready to be sent.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate fact about a request")]
pub struct Forward {
    pub stream: bool,
    /// The caller's name for its user, until the bill takes it.
    pub(crate) user: Option<String>,
    pub reply: Reply,
    pub dropped_tools: Option<String>,
    /// Names of members that no upstream gets, as the value of a header.
    pub dropped_members: Option<String>,
    /// Output tokens for each choice: the request's limit, or the model's.
    pub max_tokens: u64,
    /// Output tokens for each choice as requested, which may exceed the model's limit.
    pub asked_tokens: u64,
    pub limited: bool,
    /// Sampling parameters that the request sets.
    pub sampling: Sampling,
    /// Number of choices, 1 to 8.
    pub n: u64,
    /// Minimum number of output tokens, over all choices, that an upstream accepts and that leaves room for an answer.
    pub least_output: u64,
    /// Whether only an upstream can count the prompt's tokens, since a document may have more than its bytes show.
    pub needs_count: bool,
    /// Kind of image URLs that an upstream must accept.
    pub image_urls: ImageUrls,
    pub images: u64,
    /// Maximum number of tokens in the prompt's images.
    pub image_tokens: u64,
    /// Whether the prompt describes tools to the model. Not every exact count includes them.
    pub has_tools: bool,
    /// Whether the request may make an upstream generate tokens that it does not show. A bias towards half a character
    /// delays text and usage reports until the character is complete.
    pub may_hide_tokens: bool,
    /// Whether the prompt is only text: no images, tools or template parameters.
    pub is_plain: bool,
    /// Upper bound of the prompt's tokens, without unusual additions by an upstream's template.
    pub prompt_bound: u64,
    /// Tokens of the prompt if no exact count is available.
    pub prompt_estimate: u64,
    /// Lower bound of the prompt's tokens, with any tokenizer.
    pub prompt_least: u64,
    /// Maximum number of tokens by which the prompt exceeds a count of it, since a count does not identify the account.
    pub uncounted: u64,
    /// Locations that an upstream may refuse.
    pub(crate) places: RefusablePlaces,
    /// Bounds that the catalogue sets. Usage beyond them is billed as reported, and logged.
    pub bounds: Usage,
    /// Opening messages that later requests of the conversation repeat.
    pub(crate) opening: Bytes,
    /// Servers whose parts the conversation carries.
    pub(crate) carried: Vec<ServerId>,
    /// The request without its head, in each form that an upstream needs.
    pub(crate) bodies: Bodies,
}

impl Forward {
    /// Returns the request's origin for the bill, and moves the user's name into it.
    pub fn take_origin(&mut self, request: RequestId) -> Origin {
        let (api, user) = (model_api(&self.reply), self.user.take());
        Origin { api, stream: self.stream, user, request: Some(request) }
    }

    /// Returns the form of the body that this upstream gets.
    pub fn form(&self, upstream: &Upstream) -> BodyForm {
        BodyForm::of(upstream, &self.reply, &self.carried)
    }

    /// Returns the body for an upstream: a small head, and the rest, which all attempts share.
    pub fn body(&self, to: UpstreamParams<'_>) -> BodyPieces {
        let mut head = String::with_capacity(256);
        head.push_str("{\"model\":");
        head.push_str(&serde_json::Value::from(to.model).to_string());
        match to.form.api() {
            UpstreamApi::Chat => self.put_chat_head(to, &mut head),
            api @ (UpstreamApi::Responses | UpstreamApi::Messages) => self.put_head(api, to, &mut head),
        }
        let rest = self.bodies.rest(to.form);
        let rest = if to.form.is_passed() { rest } else { refusals::without(rest, to.refused) };
        BodyPieces { head: Bytes::from(head), rest }
    }

    /// Returns a body that asks how many tokens the prompt has.
    pub fn count_body(&self, to: UpstreamParams<'_>) -> CountBody {
        match to.form.api() {
            UpstreamApi::Chat => CountBody::Written(self.body(UpstreamParams { max_tokens: Some(1), ..to })),
            api @ (UpstreamApi::Responses | UpstreamApi::Messages) => {
                CountBody::of(api, to, self.bodies.rest(to.form))
            }
        }
    }

    fn put_chat_head(&self, to: UpstreamParams<'_>, head: &mut String) {
        if let Some(max_tokens) = to.max_tokens.filter(|_| self.reply.is_of_chat()) {
            let is_refused = to.refused.contains(RefusedMember::LimitName);
            let name = if is_refused { to.limit_param.other() } else { to.limit_param };
            put_limit(name.as_str(), max_tokens, head);
        }
        let is_salted = self.reply.is_of_chat() && !to.refused.contains(RefusedMember::CacheSalt);
        if let Some(salt) = to.cache_salt.filter(|_| is_salted) {
            head.push_str(",\"cache_salt\":");
            head.push_str(&serde_json::Value::from(salt).to_string());
        }
        if (self.stream || to.folded) && to.refused.contains(RefusedMember::StreamOptions) {
            head.push_str(",\"stream\":true");
        } else if self.stream || to.folded {
            head.push_str(",\"stream\":true,\"stream_options\":{\"include_usage\":true");
            head.push_str(match to.progress {
                ProgressReports::Usage => ",\"continuous_usage_stats\":true}",
                ProgressReports::Timings => "},\"timings_per_token\":true",
                ProgressReports::None => "}",
            });
        } else if self.reply.is_of_chat() {
            // Some servers stream unless they are asked not to.
            head.push_str(",\"stream\":false");
        }
    }

    fn put_head(&self, api: UpstreamApi, to: UpstreamParams<'_>, head: &mut String) {
        let is_of_responses = api == UpstreamApi::Responses;
        if let Some(max_tokens) = to.max_tokens {
            put_limit(if is_of_responses { "max_output_tokens" } else { "max_tokens" }, max_tokens, head);
        }
        if is_of_responses && !to.refused.contains(RefusedMember::Store) {
            head.push_str(",\"store\":false");
        }
        if let Some(account) = to.account.filter(|_| !to.refused.contains(RefusedMember::CacheKey)) {
            self.bodies.write_pseudonyms(to.form, account, head);
        }
        if !to.form.is_passed() {
            let streams = self.stream || to.folded;
            head.push_str(if streams { ",\"stream\":true" } else { ",\"stream\":false" });
        }
        if to.form.is_separate() {
            head.push_str(&open_system(to.account));
        }
    }

    /// Returns whether every upstream gets a chat or a request for embeddings.
    pub fn is_chat_alone(&self) -> bool {
        self.bodies.are_checked()
    }

    /// Counts the bytes that the request keeps in memory: its bodies, and the members that the answer repeats.
    pub fn kept_bytes(&self) -> usize {
        self.bodies.bytes() + self.reply.kept_bytes()
    }

    /// Frees the prompt once it will not be sent again.
    pub fn forget_prompt(&mut self) {
        self.bodies = Bodies::default();
        self.opening = Bytes::new();
    }

    /// Returns the prefix shared by later requests of the conversation, and by other requests with the same long
    /// beginning. `None` if the messages are too short for the choice of the upstream to matter.
    pub fn prompt_prefix(&self) -> Option<&[u8]> {
        (!self.opening.is_empty()).then_some(&self.opening[..])
    }
}

const fn model_api(reply: &Reply) -> ModelApi {
    match reply {
        Reply::Chat { .. } => ModelApi::Chat,
        Reply::Responses(_) => ModelApi::Responses,
        Reply::Messages(_) => ModelApi::Messages,
        Reply::Embeddings => ModelApi::Embeddings,
    }
}

fn put_limit(name: &str, max_tokens: u64, head: &mut String) {
    head.push_str(",\"");
    head.push_str(name);
    head.push_str("\":");
    head.push_str(itoa::Buffer::new().format(max_tokens));
}
