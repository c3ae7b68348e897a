//! A checked request of any dialect.

use bytes::Bytes;
use reply::{Reply, carried::ServerId};
use shared::{
    error::{ApiError, Code},
    tokens::Usage,
};
use shared_catalog::{Effort, ImageUrls, Model, UpstreamApi};
use token_bounds::{MAX_DEPTH, TooDeep};

use crate::{
    draft::{AskedEffort, ChatTerms, Draft, Limit, whole},
    forward::{Bodies, BodyForm, Forward, SCOPE_TOKENS, open_system},
    hub::Hub,
    names::dropped::DroppedNames,
    passage::{PassTerms, Passage},
    trimmed::trimmed,
};

/// Lowest output limit that the vendor of the Responses API accepts.
const LEAST_OF_RESPONSES: u64 = 16;

/// A request with a valid body. Later checks find out whether the model exists, and whether it allows this request.
pub struct Request {
    pub model: String,
    pub stream: bool,
    /// Number of choices, 1 to 8.
    pub n: u64,
    /// The request's limit for each choice.
    pub(crate) limit: Option<Limit>,
    /// Minimum number of output tokens that leave room for an answer after the requested reasoning.
    pub(crate) least_output: u64,
    pub(crate) effort: Option<AskedEffort>,
    /// The caller's name for its user.
    pub(crate) user: Option<String>,
    pub reply: Reply,
    /// Names of offered tools that chat cannot express.
    pub(crate) dropped_tools: DroppedNames,
    /// Names of members that chat cannot express.
    pub(crate) dropped_members: DroppedNames,
    /// The checked request as a chat, without the head's members and the model's extra parameters.
    pub(crate) draft: Draft,
    /// Members that are forwarded only if the model allows them. They are slices of the body.
    pub(crate) others: Vec<(String, Bytes)>,
    /// The client's own body, if some upstreams speak its API.
    pub(crate) passage: Option<Passage>,
}

/// Reserves memory for a request that takes this many bytes in total. An error refuses the request.
pub type Room<'r> = dyn FnMut(usize) -> Result<(), ApiError> + 'r;

impl Request {
    /// Counts the bytes that the request keeps in memory in addition to the received body.
    pub fn kept_bytes(&self) -> usize {
        let replaced = self.passage.as_ref().map_or(0, Passage::replaced_bytes);
        self.draft.room() + self.reply.kept_bytes() + replaced
    }

    /// Checks the limits of the model, and completes the request for its upstreams.
    pub fn forward(self, model: &Model) -> Result<Forward, ApiError> {
        self.forward_within(model, &mut |_| Ok(()))
    }

    /// Like [`Self::forward`], but reserves memory for each body before writing it.
    pub fn forward_within(mut self, model: &Model, room: &mut Room<'_>) -> Result<Forward, ApiError> {
        self.check_served(model)?;
        for (name, json) in &mut self.others {
            // The value is copied, since a slice would keep the whole received body in memory.
            let is_sent = model.extra_params.contains(name);
            *json = if is_sent { Bytes::copy_from_slice(json) } else { Bytes::new() };
        }
        let carried: Vec<_> = self.draft.carried.iter().map(|(server, _)| server).collect();
        let forms = BodyForm::all(model, &self.reply, &carried);
        self.count_carried(model);
        let is_passed = forms.iter().all(|form| form.is_passed());
        if let Some(fault) = self.draft.untranslatable.take().filter(|_| !is_passed) {
            return Err(fault);
        }
        // Embeddings generate no tokens.
        let most = if self.reply.is_of_chat() { model.max_output_tokens } else { 0 };
        let limit = self.limit.map(|limit| Limit { is_lowered: limit.is_lowered || is_passed, ..limit });
        let max_tokens = limit.map(|limit| limit.within(model)).transpose()?;
        let wanted = max_tokens.unwrap_or(most).max(least_to_write(&forms).min(most));
        let image_urls = handed_to_some(model, self.draft.image_need.take())?;
        let least_output = self.least_output(&forms);
        let is_separate = forms.iter().any(|form| form.is_separate());
        if is_separate {
            self.draft.shown.message();
            self.draft.shown.text(&open_system(None));
        }
        let bodies = self.bodies(model, &forms, room)?;
        for (name, _) in self.others.iter().filter(|(name, _)| !model.extra_params.contains(name)) {
            self.dropped_members.add(name);
        }
        let Self { stream, n, user, reply, draft, .. } = self;
        let dropped = (self.dropped_tools.into_header(), self.dropped_members.into_header());
        Ok(Forward {
            stream,
            user,
            reply,
            dropped_tools: dropped.0,
            dropped_members: dropped.1,
            max_tokens: wanted,
            asked_tokens: limit.map_or(wanted, |limit| limit.tokens.max(wanted)),
            n,
            least_output,
            needs_count: draft.needs_count,
            image_urls,
            images: draft.shown.images,
            image_tokens: draft.shown.most_of_images(model),
            limited: max_tokens.is_some() || most == 0,
            sampling: draft.sampling,
            prompt_bound: draft.shown.bound(model),
            prompt_estimate: draft.shown.estimate(model),
            prompt_least: draft.shown.least(),
            has_tools: draft.shown.has_preamble(),
            may_hide_tokens: draft.may_hide_tokens,
            is_plain: draft.shown.is_plain(),
            uncounted: if is_separate { SCOPE_TOKENS } else { 0 },
            places: draft.places,
            bounds: Usage::of(model.context_window, model.context_window, most.saturating_mul(n)),
            opening: bodies.opening,
            carried,
            bodies: bodies.bodies,
        })
    }

    /// Returns the minimum number of output tokens, over all choices, that the upstreams accept and that leaves room
    /// for an answer.
    fn least_output(&self, forms: &[BodyForm]) -> u64 {
        let of_api = |form: &BodyForm| match form.api() {
            UpstreamApi::Chat => self.n,
            UpstreamApi::Responses => LEAST_OF_RESPONSES,
            UpstreamApi::Messages if form.is_passed() => self.least_output,
            UpstreamApi::Messages => 1,
        };
        forms.iter().map(of_api).max().unwrap_or(self.n)
    }

    /// Counts the parts of earlier answers that the model's servers get back.
    fn count_carried(&mut self, model: &Model) {
        for (server, shown) in self.draft.carried.iter() {
            let is_its = |upstream| ServerId::of(upstream) == server;
            if server == ServerId::ANY || model.upstreams.iter().any(is_its) {
                self.draft.shown.add(shown);
            }
        }
    }

    /// Writes the bodies in these forms.
    fn bodies(
        &mut self,
        model: &Model,
        forms: &[BodyForm],
        room: &mut Room<'_>,
    ) -> Result<Written, ApiError> {
        let chats: Vec<ChatTerms> = forms.iter().filter_map(|form| form.chat()).collect();
        let is_written = |form: &BodyForm| matches!(form, BodyForm::Written { .. });
        let is_draft_needed = !chats.is_empty() || forms.iter().any(is_written);
        let opening = Bytes::copy_from_slice(&self.draft.json[self.draft.opening.clone()]);
        if !is_draft_needed {
            self.draft.json = Vec::new();
        }
        let mut bodies = Bodies::default();
        self.pass(model, forms, &mut bodies, room)?;
        let effort = self.effort.filter(|_| is_draft_needed);
        let effort = effort.map(|effort| effort.of_model(model)).transpose()?.flatten();
        for form in forms.iter().copied().filter(is_written) {
            // The body is about as long as its draft.
            room(self.kept_bytes() + bodies.bytes() + self.draft.len())?;
            bodies.add(form, self.write_for(form, model, effort)?);
        }
        if chats.is_empty() {
            return Ok(Written { bodies, opening });
        }
        if let Some(effort) = effort {
            self.draft.member(AskedEffort::NAME, &format!("\"{}\"", effort.word()));
        }
        self.put_extra_params(model)?;
        self.chats(&chats, &mut bodies, room)?;
        Ok(Written { bodies, opening })
    }

    /// Writes the chat once for each set of terms, and frees the draft.
    fn chats(&mut self, all: &[ChatTerms], bodies: &mut Bodies, room: &mut Room<'_>) -> Result<(), ApiError> {
        for (place, terms) in all.iter().enumerate() {
            let edits = self.draft.edits_for(*terms)?;
            let body = if edits.is_empty() && place + 1 == all.len() {
                self.draft.take()
            } else {
                room(self.kept_bytes() + bodies.bytes() + self.draft.len())?;
                whole(self.draft.edited(edits))
            };
            bodies.add(BodyForm::Checked(*terms), body);
        }
        self.draft.json = Vec::new();
        Ok(())
    }

    /// Writes the client's own body in each form that an upstream needs, and frees the received body.
    fn pass(
        &mut self,
        model: &Model,
        forms: &[BodyForm],
        bodies: &mut Bodies,
        room: &mut Room<'_>,
    ) -> Result<(), ApiError> {
        let Some(mut passage) = self.passage.take() else { return Ok(()) };
        let mut dropped = DroppedNames::default();
        for form in forms {
            let BodyForm::Passed { api, like, is_separate } = *form else { continue };
            let Some(upstream) = model.upstreams.get(like) else { return Err(ApiError::internal()) };
            let terms = PassTerms::of(upstream, api, is_separate);
            if !terms.compaction
                && let Some(fault) = passage.compaction.take()
            {
                return Err(fault);
            }
            let bytes = passage.received_bytes() + passage.replaced_bytes();
            room(self.kept_bytes() + bodies.bytes() + 2 * bytes)?;
            bodies.pass(*form, passage.write(terms, &model.efforts, &mut dropped));
        }
        // If any upstream gets a body of another form, the dropped names were noted when that body was written.
        if !forms.is_empty() && forms.iter().all(|form| form.is_passed()) {
            self.dropped_tools = std::mem::take(&mut passage.dropped_tools);
            self.dropped_members = dropped;
        }
        Ok(())
    }

    /// Writes the body for upstreams of another API.
    fn write_for(
        &mut self,
        form: BodyForm,
        model: &Model,
        effort: Option<Effort>,
    ) -> Result<Bytes, ApiError> {
        let (reply, choices, dropped) = (&self.reply, self.n, &mut self.dropped_members);
        let server = form.server();
        self.draft.read_back(|chat, length| {
            let reasons = !model.efforts.is_empty();
            Hub { chat, length, reply, choices, effort, reasons, server }
                .write(form, dropped)
                .map(|json| trimmed(json.into_bytes()))
        })
    }

    /// Writes the members that are not in the API but that the model's upstreams accept.
    fn put_extra_params(&mut self, model: &Model) -> Result<(), ApiError> {
        for name in &model.extra_params {
            if let Some((_, json)) = self.others.iter().find(|(other, _)| other == name) {
                let json = String::from_utf8_lossy(json);
                // Most such parameters are arguments of the chat template, so the template may put them into the
                // prompt.
                self.draft.shown.json(&json).map_err(|TooDeep| {
                    let message = format!("Invalid '{name}': is nested deeper than {MAX_DEPTH} levels.");
                    ApiError::at(Code::InvalidValue, name, message)
                })?;
                self.draft.push(&format!(",{}:{json}", serde_json::Value::from(name.as_str())));
            }
        }
        Ok(())
    }
}

/// The bodies of a request, and the opening of its conversation.
struct Written {
    bodies: Bodies,
    opening: Bytes,
}

/// Returns the lowest output limit that upstreams of another API accept.
fn least_to_write(forms: &[BodyForm]) -> u64 {
    let is_written = |form: &&BodyForm| form.api() == UpstreamApi::Responses && !form.is_passed();
    forms.iter().find(is_written).map_or(0, |_| LEAST_OF_RESPONSES)
}

impl Request {
    /// Refuses a model that does not serve this kind of request.
    fn check_served(&self, model: &Model) -> Result<(), ApiError> {
        let (is_served, other) = if self.reply.is_of_chat() {
            (model.serves.chat, "serves embeddings, not chat")
        } else {
            (model.serves.embeddings, "serves chat, not embeddings")
        };
        if is_served {
            return Ok(());
        }
        let message = format!("Invalid 'model': the model '{}' {other}.", model.id);
        Err(ApiError::at(Code::UnsupportedValue, "model", message))
    }
}

/// Refuses images that no upstream of the model accepts. Returns the kind of image URLs that the request's upstream
/// must accept.
fn handed_to_some(model: &Model, need: Option<(ImageUrls, String)>) -> Result<ImageUrls, ApiError> {
    let Some((need, place)) = need else { return Ok(ImageUrls::Data) };
    let most = model.upstreams.iter().map(|upstream| upstream.image_urls).max().unwrap_or_default();
    if need <= most {
        return Ok(need);
    }
    let problem = match most {
        ImageUrls::Data => "this model accepts images only as data URLs",
        ImageUrls::Https | ImageUrls::Any => {
            "this model accepts images as data URLs, and from plainly spelled https addresses of public hosts"
        }
    };
    Err(ApiError::at(Code::InvalidValue, place.clone(), format!("Invalid '{place}': {problem}.")))
}
