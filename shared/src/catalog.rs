//! The catalogue: models, their prices, and their upstreams. Checked completely at start.

use std::{collections::HashSet, ops::Range};

use http::Uri;
use serde::Deserialize;
use toml::Spanned;

use crate::{money::NanoUsd, text::is_control};

/// The parsed catalogue.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// Description of this installation in `GET /v1`.
    pub service: Service,
    /// The models, in the order of the file; at least one.
    pub models: Vec<Model>,
}

/// Description of an installation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Name of the service.
    pub name: String,
    /// Name of its provider.
    pub provider: String,
    /// URL of its documentation.
    pub docs: String,
}

/// A model as clients see it.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name by which clients request the model, exactly.
    pub id: String,
    /// `owned_by` in listings.
    pub owned_by: String,
    /// Time at which it was added, in seconds since 1970, for listings.
    pub created: i64,
    /// Tokens of prompt and output together.
    pub context_window: u64,
    /// Tokens that one choice may generate.
    pub max_output_tokens: u64,
    /// Bound on the tokens of one image, used for holds.
    pub max_tokens_per_image: u64,
    /// Request fields that are forwarded to the upstream beyond the allow-list.
    pub extra_params: Vec<String>,
    /// Prices of its tokens.
    pub price: Price,
    /// Servers of the model; at least one.
    pub upstreams: Vec<Upstream>,
}

/// Prices per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Prompt tokens.
    pub input: NanoUsd,
    /// Prompt tokens that the upstream had cached.
    pub cached_input: NanoUsd,
    /// Generated tokens, reasoning included.
    pub output: NanoUsd,
}

/// A server of a model.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Software of the server, where that makes a difference.
    pub kind: UpstreamKind,
    /// Base address, `/v1` included. `None` only for the built-in model.
    pub url: Option<Uri>,
    /// The server's own name for the model.
    pub model: String,
    /// Environment variable that holds the server's credential.
    pub api_key_env: Option<String>,
    /// The server's name for the limit of output.
    pub limit_param: LimitParam,
    /// Share of the requests, relative to the model's other upstreams.
    pub weight: u32,
    /// Tokens that its template adds to a prompt beyond the usual.
    pub prompt_overhead: u64,
    /// Charge for a stream whose client leaves before the upstream answered.
    pub left_before_head: LeftBeforeHead,
    /// The URLs of images that it may be handed.
    pub image_urls: ImageUrls,
    /// Every generated token is visible in its stream: no hidden reasoning.
    pub streams_every_token: bool,
}

/// The URLs of images that an upstream may be handed. Each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageUrls {
    /// Images inside the request alone: it fetches nothing.
    #[default]
    Data,
    /// Also `https` addresses of public hosts.
    Https,
    /// Any address, `http` and hosts inside included.
    Any,
}

impl ImageUrls {
    /// The default of a kind: a server of one's own stands where private addresses can be reached.
    const fn of(kind: UpstreamKind) -> Self {
        match kind {
            UpstreamKind::Openai => Self::Https,
            UpstreamKind::Vllm
            | UpstreamKind::Sglang
            | UpstreamKind::LlamaCpp
            | UpstreamKind::Ollama
            | UpstreamKind::Builtin => Self::Data,
        }
    }
}

/// Charge for a stream whose client leaves before the upstream answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftBeforeHead {
    /// Nothing.
    #[default]
    Free,
    /// The prompt, which the upstream has read by then.
    Prompt,
}

/// The software of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamKind {
    /// Any server of the OpenAI chat API.
    Openai,
    /// vLLM
    Vllm,
    /// SGLang
    Sglang,
    /// llama.cpp's server
    LlamaCpp,
    /// Ollama
    Ollama,
    /// The model inside the `faregate` binary.
    Builtin,
}

/// A server's name for the limit of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitParam {
    /// The common name, which OpenAI's newer models refuse.
    #[default]
    MaxTokens,
    /// OpenAI's newer name, which many servers do not support.
    MaxCompletionTokens,
}

impl LimitParam {
    /// Name of the member in a request.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// A fault in a catalogue, and its place.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {reason}", .line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct CatalogError {
    file: String,
    line: Option<usize>,
    reason: String,
}

impl Catalog {
    /// Reads and checks a catalogue; `file` names it in errors.
    pub fn parse(text: &str, file: &str) -> Result<Self, CatalogError> {
        let error = |span: Option<Range<usize>>, reason: String| CatalogError {
            file: file.to_owned(),
            line: span.map(|span| line_of(text, span.start)),
            reason,
        };
        let raw: RawCatalog = toml::from_str(text).map_err(|e| error(e.span(), e.message().to_owned()))?;
        if raw.model.is_empty() {
            return Err(error(None, "no [[model]] is offered".into()));
        }
        let mut ids = HashSet::new();
        let mut models = Vec::new();
        for raw in raw.model {
            let span = raw.id.span();
            let model =
                raw.check().map_err(|(at, reason)| error(Some(at.unwrap_or(span.clone())), reason))?;
            if !ids.insert(model.id.clone()) {
                return Err(error(Some(span), format!("there are two models with the id \"{}\"", model.id)));
            }
            models.push(model);
        }
        Ok(Self { service: raw.service, models })
    }

    /// The model with exactly this id.
    pub fn model(&self, id: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.id == id)
    }

    /// All ids, as errors list them.
    pub fn ids(&self) -> Vec<String> {
        self.models.iter().map(|model| model.id.clone()).collect()
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|b| *b == b'\n').count()
}

/// A fault and its place (the model's id where there is no better place).
type Fault = (Option<Range<usize>>, String);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCatalog {
    service: Service,
    #[serde(default)]
    model: Vec<RawModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    id: Spanned<String>,
    owned_by: String,
    #[serde(default = "default_created")]
    created: i64,
    context_window: Spanned<u64>,
    max_output_tokens: Spanned<u64>,
    #[serde(default = "default_tokens_per_image")]
    max_tokens_per_image: u64,
    #[serde(default)]
    extra_params: Vec<String>,
    price: Option<Spanned<Price>>,
    #[serde(default)]
    upstream: Vec<RawUpstream>,
}

/// 2026-01-01, for models without a date of their own.
const fn default_created() -> i64 {
    1_767_225_600
}

const fn default_tokens_per_image() -> u64 {
    16_384
}

impl RawModel {
    fn check(self) -> Result<Model, Fault> {
        let id = self.id.into_inner();
        let at_id = |reason: String| (None, format!("model \"{id}\" {reason}"));
        if id.is_empty() || id.chars().any(is_control) {
            return Err((None, "a model's id is empty or has control characters".into()));
        }
        let price = self
            .price
            .ok_or_else(|| at_id("has no [model.price]; what has no price cannot be sold".into()))?;
        let (at, price) = (price.span(), price.into_inner());
        if [price.input, price.cached_input, price.output]
            .iter()
            .any(|p| *p < NanoUsd::ZERO || *p > NanoUsd::MAX)
        {
            return Err((Some(at), "a price is negative or beyond 9000000 USD per million tokens".into()));
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
    /// Parsed only to be refused with its reason.
    tokenizer: Option<Spanned<String>>,
    #[serde(default = "default_weight")]
    weight: u32,
    #[serde(default)]
    prompt_overhead: u64,
    #[serde(default)]
    left_before_head: LeftBeforeHead,
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
        let (left_before_head, streams_every_token) = (self.left_before_head, self.streams_every_token);
        Ok(Upstream {
            kind,
            url,
            model,
            api_key_env,
            limit_param,
            weight,
            prompt_overhead,
            left_before_head,
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

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[service]
name = "Faregate"
provider = "Model"
docs = "https://docs.example.com"

[[model]]
id = "Model Flash"
owned_by = "model-service"
context_window = 1048576
max_output_tokens = 131072

[model.price]
input = "0.10"
cached_input = "0.025"
output = "0.40"

[[model.upstream]]
kind = "vllm"
url = "http://127.0.0.1:8000/v1/"
model = "Qwen/Qwen3"
"#;

    fn fault(from: &str, to: &str) -> String {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from} is in the catalogue");
        Catalog::parse(&text, "models.toml").unwrap_err().to_string()
    }

    #[test]
    fn a_good_catalogue_is_read_exactly() {
        let catalog = Catalog::parse(GOOD, "models.toml").unwrap();
        let model = catalog.model("Model Flash").unwrap();
        assert_eq!(model.price.cached_input.nanos(), 25_000_000);
        assert_eq!(model.upstreams[0].limit_param.as_str(), "max_tokens");
        assert_eq!(model.upstreams[0].url.as_ref().unwrap().to_string(), "http://127.0.0.1:8000/v1");
        assert!(catalog.model("model flash").is_none());
        let image_urls = |text: &str| Catalog::parse(text, "m").unwrap().models[0].upstreams[0].image_urls;
        assert_eq!(image_urls(GOOD), ImageUrls::Data);
        assert_eq!(image_urls(&GOOD.replace("\"vllm\"", "\"openai\"")), ImageUrls::Https);
        assert_eq!(image_urls(&GOOD.replace("\"vllm\"", "\"vllm\"\nimage_urls = \"any\"")), ImageUrls::Any);
    }

    #[test]
    fn a_fault_is_told_with_file_line_and_reason() {
        assert_eq!(
            fault("\n[model.price]\ninput = \"0.10\"\ncached_input = \"0.025\"\noutput = \"0.40\"\n", ""),
            "models.toml:8: model \"Model Flash\" has no [model.price]; what has no price cannot be sold"
        );
        assert!(fault("owned_by", "owned_bi").starts_with("models.toml:9: unknown field `owned_bi`"));
        assert!(fault("0.40", "0.4.0").starts_with("models.toml:16: `0.4.0` is not a number"));
        assert!(fault("0.10", "-1").contains("models.toml:13: a price is negative"));
        assert!(fault("131072", "0").contains("models.toml:11: max_output_tokens must be"));
        assert!(fault("http://", "ftp://").starts_with("models.toml:20: \"ftp://"));
        assert!(fault("vllm", "vlm").contains("models.toml:19: unknown variant `vlm`"));
        let twice = fault(
            "max_output_tokens = 131072",
            "max_output_tokens = 131072\nextra_params = [\"top_k\", \"top_k\"]",
        );
        assert!(twice.contains("lists the extra parameter \"top_k\" twice"), "{twice}");
        assert!(
            fault("model = \"Qwen/Qwen3\"", "model = \"q\"\ntokenizer = \"tokenizer.json\"")
                .contains("models.toml:22: a tokenizer alone")
        );
        assert!(fault("model = \"Qwen/Qwen3\"", "").contains("needs the name it knows"));
        let (head, model) = GOOD.split_at(GOOD.find("[[model]]").unwrap());
        let twice = Catalog::parse(&format!("{head}{model}{model}"), "m").unwrap_err().to_string();
        assert!(twice.contains("two models with the id \"Model Flash\""), "{twice}");
        assert!(Catalog::parse(head, "m").unwrap_err().to_string().contains("no [[model]]"));
    }
}
