//! The catalogue's file format, and its checks.

use std::ops::Range;

use http::Uri;
use serde::Deserialize;
use toml::Spanned;

use super::{
    ImageUrls, LeftBeforeHead, LeftMidStream, LimitParam, Model, Price, Rates, Service, Upstream,
    UpstreamKind,
};
use crate::{money::NanoUsd, text::is_control};

/// A fault and its place (the model's id for want of a better place).
pub(super) type Fault = (Option<Range<usize>>, String);

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
    max_output_tokens: Spanned<u64>,
    #[serde(default = "default_tokens_per_image")]
    max_tokens_per_image: u64,
    #[serde(default)]
    extra_params: Vec<String>,
    price: Option<Spanned<RawPrice>>,
    #[serde(default)]
    upstream: Vec<RawUpstream>,
}

/// Prices as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrice {
    input: NanoUsd,
    cached_input: NanoUsd,
    output: NanoUsd,
}

/// 2026-01-01, for models without a date.
const fn default_created() -> i64 {
    1_767_225_600
}

const fn default_tokens_per_image() -> u64 {
    16_384
}

impl RawModel {
    pub(super) fn check(self) -> Result<Model, Fault> {
        let id = self.id.into_inner();
        let at_id = |reason: String| (None, format!("model \"{id}\" {reason}"));
        if id.is_empty() || id.chars().any(is_control) {
            return Err((None, "a model's id is empty or has control characters".into()));
        }
        let price = self
            .price
            .ok_or_else(|| at_id("has no [model.price]; what has no price cannot be sold".into()))?;
        let (at, RawPrice { input, cached_input, output }) = (price.span(), price.into_inner());
        let price = Price::flat(Rates::of_three(input, cached_input, output));
        if let Some(fault) = price.fault() {
            return Err((Some(at), fault.into()));
        }
        let (at, max_output_tokens) = (self.max_output_tokens.span(), self.max_output_tokens.into_inner());
        if max_output_tokens == 0 {
            return Err((Some(at), "max_output_tokens must be at least 1".into()));
        }
        let (at, context_window) = (self.context_window.span(), self.context_window.into_inner());
        if context_window < max_output_tokens {
            return Err((Some(at), "context_window is smaller than max_output_tokens".into()));
        }
        if let Some(twice) = self
            .extra_params
            .iter()
            .enumerate()
            .find_map(|(i, p)| self.extra_params[..i].contains(p).then_some(p))
        {
            return Err(at_id(format!("lists the extra parameter \"{twice}\" twice")));
        }
        if self.upstream.is_empty() {
            return Err(at_id("has no [[model.upstream]]".into()));
        }
        let upstreams = self.upstream.into_iter().map(RawUpstream::check).collect::<Result<_, _>>()?;
        Ok(Model {
            id,
            owned_by: self.owned_by,
            created: self.created,
            context_window,
            max_output_tokens,
            max_tokens_per_image: self.max_tokens_per_image,
            extra_params: self.extra_params,
            price,
            upstreams,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawUpstream {
    kind: Spanned<UpstreamKind>,
    url: Option<Spanned<String>>,
    model: Option<String>,
    api_key_env: Option<String>,
    #[serde(default)]
    limit_param: LimitParam,
    /// Parsed only to be refused with a reason.
    tokenizer: Option<Spanned<String>>,
    #[serde(default = "default_weight")]
    weight: u32,
    #[serde(default)]
    prompt_overhead: u64,
    #[serde(default)]
    left_before_head: LeftBeforeHead,
    #[serde(default)]
    left_mid_stream: LeftMidStream,
    image_urls: Option<ImageUrls>,
    #[serde(default)]
    streams_every_token: bool,
}

const fn default_weight() -> u32 {
    1
}

impl RawUpstream {
    fn check(self) -> Result<Upstream, Fault> {
        let (at, kind) = (self.kind.span(), self.kind.into_inner());
        let fault = |reason: &str| (Some(at.clone()), reason.to_owned());
        let url = match (kind, self.url) {
            (UpstreamKind::Builtin, None) => None,
            (UpstreamKind::Builtin, Some(_)) => return Err(fault("the built-in model needs no url")),
            (_, None) => return Err(fault("an upstream needs a url")),
            (_, Some(url)) => Some(base_url(url)?),
        };
        let model = match (kind, self.model) {
            (_, Some(model)) if !model.is_empty() => model,
            (UpstreamKind::Builtin, _) => "tiny-demo".to_owned(),
            _ => return Err(fault("an upstream needs the name it knows the model by: model = \"…\"")),
        };
        if let Some(tokenizer) = self.tokenizer {
            let reason = "a tokenizer alone counts no prompt exactly, since the server's template adds to it; kinds that \
                          count prompts themselves are vllm, sglang and llama_cpp";
            return Err((Some(tokenizer.span()), reason.to_owned()));
        }
        if self.weight == 0 {
            return Err(fault("an upstream's weight is at least 1"));
        }
        let Self { api_key_env, limit_param, weight, prompt_overhead, .. } = self;
        let Self { left_before_head, left_mid_stream, streams_every_token, .. } = self;
        Ok(Upstream {
            kind,
            url,
            model,
            api_key_env,
            limit_param,
            weight,
            prompt_overhead,
            left_before_head,
            left_mid_stream,
            image_urls: self.image_urls.unwrap_or(ImageUrls::of(kind)),
            streams_every_token,
        })
    }
}

/// Parses a base address to which paths can be appended.
fn base_url(url: Spanned<String>) -> Result<Uri, Fault> {
    let at = url.span();
    let text = url.into_inner();
    let uri: Option<Uri> = text.trim_end_matches('/').parse().ok();
    uri.filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() && uri.query().is_none()
    })
    .ok_or_else(|| (Some(at), format!("\"{text}\" is no http(s) address such as http://127.0.0.1:8000/v1")))
}
