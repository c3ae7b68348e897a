//! The file format of the catalogue, and the checks of a file.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use http::Uri;
use serde::Deserialize;
use shared::text::is_control;
use toml::Spanned;

use crate::{
    access::{RawAccess, RawSource},
    effort::Effort,
    history::{CallIds, HistoryForm, ReasoningParam, SystemMessages},
    model::{Model, Serves, Service},
    price::{Price, RatePair},
    table::{Fault, Markup, RawTable},
    upstream::{ImageUrls, LeftBeforeHead, LeftMidStream, LimitParam, Upstream, UpstreamApi, UpstreamKind},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CatalogFile {
    pub(super) service: Service,
    #[serde(default)]
    pub(super) model: Vec<RawModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawModel {
    pub(super) id: Spanned<String>,
    owned_by: String,
    #[serde(default = "default_created")]
    created: i64,
    context_window: Spanned<u64>,
    max_output_tokens: Option<Spanned<u64>>,
    #[serde(default = "default_tokens_per_image")]
    max_tokens_per_image: u64,
    #[serde(default)]
    extra_params: Vec<String>,
    #[serde(default)]
    pub(super) aliases: Vec<Spanned<String>>,
    serves: Option<Spanned<Vec<ServedApi>>>,
    efforts: Option<Spanned<Vec<Effort>>>,
    price: Option<Spanned<RawTable>>,
    markup: Option<Spanned<Markup>>,
    #[serde(default)]
    sell_below_cost: bool,
    #[serde(default)]
    upstream: Vec<RawUpstream>,
}

/// Returns when a model was added if its entry does not say so: 2026-01-01, in seconds since 1970.
const fn default_created() -> i64 {
    1_767_225_600
}

const fn default_tokens_per_image() -> u64 {
    16_384
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ServedApi {
    Chat,
    Embeddings,
}

impl RawModel {
    pub(super) fn check(self) -> Result<Model, Fault> {
        let id = self.id.into_inner();
        let at_id = |reason: &str| (None, format!("model \"{id}\" {reason}"));
        if id.is_empty() || id.chars().any(is_control) {
            return Err((None, "a model's id is empty or has control characters".into()));
        }
        let serves = self.serves.map_or(Ok(Serves::CHAT), serves)?;
        let efforts = self.efforts.map_or_else(|| Ok(Effort::USUAL.to_vec()), efforts)?;
        let (at, max_output_tokens) = match self.max_output_tokens {
            Some(most) => (most.span(), most.into_inner()),
            None if serves.chat => return Err(at_id("has no max_output_tokens")),
            None => (self.context_window.span(), 0),
        };
        if max_output_tokens == 0 && serves.chat {
            return Err((Some(at), "max_output_tokens must be at least 1".into()));
        }
        let (at, context_window) = (self.context_window.span(), self.context_window.into_inner());
        if context_window == 0 {
            return Err((Some(at), "context_window must be at least 1".into()));
        }
        if context_window < max_output_tokens {
            return Err((Some(at), "context_window is smaller than max_output_tokens".into()));
        }
        let mut params = self.extra_params.iter().enumerate();
        if let Some((_, twice)) = params.find(|(i, param)| self.extra_params[..*i].contains(param)) {
            return Err(at_id(&format!("lists the extra parameter \"{twice}\" twice")));
        }
        if self.upstream.is_empty() {
            return Err(at_id("has no [[model.upstream]]"));
        }
        let mut upstreams = (1..)
            .zip(self.upstream)
            .map(|(place, upstream)| upstream.check(&id, place))
            .collect::<Result<Vec<_>, _>>()?;
        let first = |upstream: &Upstream| upstreams.iter().position(|first| first.passes_as(upstream));
        let places: Vec<_> = upstreams.iter().map(|upstream| first(upstream).unwrap_or_default()).collect();
        for (upstream, place) in upstreams.iter_mut().zip(places) {
            upstream.passes_like = place;
        }
        let mut names = HashSet::new();
        if let Some(twice) = upstreams.iter().find(|upstream| !names.insert(&upstream.name)) {
            return Err(at_id(&format!("has two upstreams with the name \"{}\"", twice.name)));
        }
        let sale = Sale { price: self.price, markup: self.markup, below_cost: self.sell_below_cost };
        let price = sale.price(&upstreams).map_err(|(at, reason)| (at, at_id(&reason).1))?;
        Ok(Model {
            id,
            aliases: self.aliases.into_iter().map(Spanned::into_inner).collect(),
            owned_by: self.owned_by,
            created: self.created,
            context_window,
            max_output_tokens,
            max_tokens_per_image: self.max_tokens_per_image,
            extra_params: self.extra_params,
            serves,
            efforts,
            price: Arc::new(price),
            upstreams,
        })
    }
}

fn serves(apis: Spanned<Vec<ServedApi>>) -> Result<Serves, Fault> {
    let (at, apis) = (apis.span(), apis.into_inner());
    let [chat, embeddings] = [ServedApi::Chat, ServedApi::Embeddings].map(|api| apis.contains(&api));
    if usize::from(chat) + usize::from(embeddings) != apis.len() || apis.is_empty() {
        return Err((Some(at), "`serves` must list \"chat\", \"embeddings\" or both, each once".into()));
    }
    Ok(Serves { chat, embeddings })
}

/// Checks that no effort is listed twice.
fn efforts(efforts: Spanned<Vec<Effort>>) -> Result<Vec<Effort>, Fault> {
    let (at, efforts) = (efforts.span(), efforts.into_inner());
    let mut listed = efforts.iter().enumerate();
    if let Some((_, twice)) = listed.find(|(i, effort)| efforts[..*i].contains(effort)) {
        return Err((Some(at), format!("`efforts` lists \"{}\" twice", twice.word())));
    }
    Ok(efforts)
}

/// How a model is sold: at a price of its own, or at a markup on its cost.
struct Sale {
    price: Option<Spanned<RawTable>>,
    markup: Option<Spanned<Markup>>,
    below_cost: bool,
}

impl Sale {
    /// Returns the price after comparing it with the costs of the upstreams.
    fn price(self, upstreams: &[Upstream]) -> Result<Price, Fault> {
        let (at, price) = match (self.price, self.markup) {
            (Some(_), Some(markup)) => {
                return Err((
                    Some(markup.span()),
                    "has both a price and a markup; set only one of them".into(),
                ));
            }
            (None, None) => {
                return Err((None, "has no [model.price] and no markup; set one of them".into()));
            }
            (Some(price), None) => (price.span(), RawTable::check(price)?),
            (None, Some(markup)) => {
                let (at, markup) = (markup.span(), markup.into_inner());
                let costs: Option<Vec<_>> = upstreams.iter().map(|upstream| upstream.cost.as_ref()).collect();
                let fault = |reason: &str| (Some(at.clone()), reason.to_owned());
                let costs = costs.ok_or_else(|| {
                    fault("has a markup, but one of its upstreams has no [model.upstream.cost]")
                })?;
                let price = markup
                    .on(&costs)
                    .ok_or_else(|| fault("has a markup that makes a price exceed the maximum"))?;
                (at, price)
            }
        };
        let costs = upstreams.iter().filter_map(|upstream| upstream.cost.as_ref());
        let below = costs.flat_map(|cost| price.beside(cost)).find(|pair| pair.first < pair.second);
        match below {
            Some(pair) if !self.below_cost => {
                let RatePair { first: price, second: cost, .. } = pair;
                let reason = format!(
                    "sells {pair} for {price}, but pays {cost} for it; `sell_below_cost = true` allows that"
                );
                Err((Some(at), reason))
            }
            Some(_) | None => Ok(price),
        }
    }
}

/// Checks that no two models have the same name, be it an id or an alias.
pub(super) fn check_names(models: &[RawModel]) -> Result<(), Fault> {
    let mut names = HashSet::new();
    for model in models {
        let (at, id) = (model.id.span(), model.id.get_ref());
        if !names.insert(id) {
            return Err((Some(at), format!("there are two models with the id \"{id}\"")));
        }
    }
    for alias in models.iter().flat_map(|model| &model.aliases) {
        let (at, name) = (alias.span(), alias.get_ref());
        if name.is_empty() || name.chars().any(is_control) {
            return Err((Some(at), "an alias is empty or has control characters".into()));
        }
        if !names.insert(name) {
            return Err((Some(at), format!("\"{name}\" is already the id or an alias of a model")));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a line of the catalogue")]
struct RawUpstream {
    name: Option<Spanned<String>>,
    kind: Spanned<UpstreamKind>,
    url: Option<Spanned<String>>,
    model: Option<String>,
    speaks: Option<Spanned<Vec<UpstreamApi>>>,
    api_key_env: Option<String>,
    api_key_file: Option<Spanned<PathBuf>>,
    auth: Option<Spanned<String>>,
    headers: Option<Spanned<BTreeMap<String, RawSource>>>,
    ca_file: Option<PathBuf>,
    proxy: Option<Spanned<String>>,
    #[serde(default)]
    limit_param: LimitParam,
    reasoning_param: Option<ReasoningParam>,
    system_messages: Option<SystemMessages>,
    #[serde(default)]
    call_ids: CallIds,
    #[serde(default)]
    thought_signatures: bool,
    /// Not used. This member is read so that a catalogue that has it is refused with a reason.
    tokenizer: Option<Spanned<String>>,
    #[serde(default = "default_weight")]
    weight: u32,
    #[serde(default)]
    prompt_overhead: u64,
    #[serde(default)]
    left_before_head: LeftBeforeHead,
    left_mid_stream: Option<LeftMidStream>,
    image_urls: Option<ImageUrls>,
    #[serde(default = "default_cache_breakpoints")]
    cache_breakpoints: bool,
    pass_members: Option<Spanned<Vec<String>>>,
    #[serde(default)]
    compaction: bool,
    #[serde(default = "default_share_cache")]
    share_cache: bool,
    #[serde(default)]
    pass_query: Vec<Spanned<String>>,
    #[serde(default)]
    streams_every_token: bool,
    cost: Option<Spanned<RawTable>>,
}

const fn default_weight() -> u32 {
    1
}

const fn default_cache_breakpoints() -> bool {
    true
}

const fn default_share_cache() -> bool {
    true
}

impl RawUpstream {
    /// Returns the form in which the server wants a chat's earlier messages. Missing members get the defaults of the
    /// server's kind.
    fn history(&self) -> HistoryForm {
        let kind = *self.kind.get_ref();
        HistoryForm {
            reasoning_param: self.reasoning_param.unwrap_or(ReasoningParam::of(kind)),
            system_messages: self.system_messages.unwrap_or(SystemMessages::of(kind)),
            call_ids: self.call_ids,
            thought_signatures: self.thought_signatures,
        }
    }

    /// Checks an upstream. `place` is its position, counted from 1, among the model's upstreams.
    fn check(self, id: &str, place: usize) -> Result<Upstream, Fault> {
        let history = self.history();
        let name = self.name.map_or_else(|| Ok(format!("upstream-{place}")), name)?;
        let (at, kind) = (self.kind.span(), self.kind.into_inner());
        let fault = |reason: &str| (Some(at.clone()), reason.to_owned());
        let url = match (kind, self.url) {
            (UpstreamKind::Builtin, None) => None,
            (UpstreamKind::Builtin, Some(_)) => {
                return Err(fault("the built-in model has no url; remove it"));
            }
            (_, None) => return Err(fault("an upstream needs a url")),
            (_, Some(url)) => Some(base_url(url)?),
        };
        let model = match (kind, self.model) {
            (_, Some(model)) if !model.is_empty() => model,
            (UpstreamKind::Builtin, _) => "tiny-demo".to_owned(),
            _ => return Err(fault("an upstream needs its own name for the model: model = \"…\"")),
        };
        if let Some(tokenizer) = self.tokenizer {
            let reason = "`tokenizer` is not supported, since it ignores what the server's template adds to a prompt; the kinds that \
                          count prompts themselves are vllm, sglang and llama_cpp";
            return Err((Some(tokenizer.span()), reason.to_owned()));
        }
        if self.weight == 0 {
            return Err(fault("an upstream's weight must be at least 1"));
        }
        let of_cost = |(at, reason)| (at, format!("the cost of model \"{id}\" {reason}"));
        let cost = self.cost.map(RawTable::check).transpose().map_err(of_cost)?;
        let Self { api_key_env, api_key_file, auth, headers, ca_file, proxy, .. } = self;
        let speaks = self.speaks.map_or_else(|| Ok(kind.speaks()), |listed| speaks(kind, listed))?;
        let usual_auth = if kind == UpstreamKind::Anthropic { "x-api-key" } else { "bearer" };
        let mut access =
            RawAccess { api_key_env, api_key_file, auth, headers, ca_file, proxy }.check(usual_auth)?;
        if speaks.contains(&UpstreamApi::Messages) {
            access.name_version_of_messages();
        }
        let Self { limit_param, weight, prompt_overhead, .. } = self;
        let Self {
            left_before_head, cache_breakpoints, compaction, share_cache, streams_every_token, ..
        } = self;
        let pass_members = self.pass_members.map_or_else(|| Ok(Vec::new()), pass_members)?;
        let pass_query = self.pass_query.into_iter().map(query_name).collect::<Result<_, _>>()?;
        let left_mid_stream = self.left_mid_stream.unwrap_or_else(|| LeftMidStream::of(&speaks));
        Ok(Upstream {
            name,
            kind,
            url,
            model,
            speaks,
            access,
            limit_param,
            history,
            weight,
            prompt_overhead,
            left_before_head,
            left_mid_stream,
            image_urls: self.image_urls.unwrap_or(ImageUrls::of(kind)),
            cache_breakpoints,
            pass_query,
            pass_members,
            compaction,
            share_cache,
            passes_like: 0,
            streams_every_token,
            cost,
        })
    }
}

/// Maximum length in characters of a member's name.
const LONGEST_MEMBER: usize = 64;

/// Checks the names of members. In a name, a dot separates a member from a member inside it.
fn pass_members(names: Spanned<Vec<String>>) -> Result<Vec<String>, Fault> {
    let (at, names) = (names.span(), names.into_inner());
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_name = |name: &String| (1..=LONGEST_MEMBER).contains(&name.len()) && name.bytes().all(is_of_name);
    let mut listed = names.iter().enumerate();
    match listed.find(|(i, name)| !is_name(name) || names[..*i].contains(name)) {
        None => Ok(names),
        Some((_, name)) => {
            let reason = format!(
                "`pass_members` lists \"{name}\": a name must have 1 to {LONGEST_MEMBER} of a-z, A-Z, 0-9, '_', '-' and '.', and be listed once"
            );
            Err((Some(at), reason))
        }
    }
}

/// Maximum length in characters of an upstream's name.
const LONGEST_NAME: usize = 64;

fn name(name: Spanned<String>) -> Result<String, Fault> {
    let (at, name) = (name.span(), name.into_inner());
    if name.is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(is_control) {
        return Err((
            Some(at),
            format!("an upstream's name must have 1 to {LONGEST_NAME} characters and no control characters"),
        ));
    }
    Ok(name)
}

/// Checks the name of a query parameter. Clients must spell the name exactly like this.
fn query_name(name: Spanned<String>) -> Result<String, Fault> {
    let (at, name) = (name.span(), name.into_inner());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err((
            Some(at),
            "names in pass_query may have only letters, digits, '-', '_' and '.'".to_owned(),
        ));
    }
    Ok(name)
}

fn speaks(kind: UpstreamKind, listed: Spanned<Vec<UpstreamApi>>) -> Result<Vec<UpstreamApi>, Fault> {
    let (at, listed) = (listed.span(), listed.into_inner());
    let is_twice = |(i, api): (usize, &UpstreamApi)| listed[..i].contains(api);
    if listed.is_empty() || listed.iter().enumerate().any(is_twice) {
        let reason = "`speaks` must list \"chat\", \"responses\", \"messages\" or several of them, each once";
        return Err((Some(at), reason.into()));
    }
    if kind == UpstreamKind::Builtin && listed != kind.speaks() {
        return Err((Some(at), "the built-in model speaks only \"chat\"".into()));
    }
    Ok(listed)
}

/// Parses a base address, to which paths can be appended.
fn base_url(url: Spanned<String>) -> Result<Uri, Fault> {
    let at = url.span();
    let text = url.into_inner();
    let uri: Option<Uri> = text.trim_end_matches('/').parse().ok();
    uri.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()).ok_or_else(
        || (Some(at), format!("\"{text}\" is not an http(s) address such as http://127.0.0.1:8000/v1")),
    )
}
