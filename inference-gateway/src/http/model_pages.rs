//! Models as lists describe them, and the list in pages, as clients of the Messages API read it.

mod codex;

use schemars::JsonSchema;
use serde::Serialize;
use shared::{
    error::{ApiError, Code},
    money::NanoUsd,
    time::Timestamp,
};
use shared_catalog::{Model, Rates};

pub(super) use codex::{CodexModels, asks_for_codex};

const MAX_PAGE: usize = 1000;

/// A model in a listing.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Model")]
pub(super) struct ModelObject<'a> {
    id: &'a str,
    #[schemars(extend("const" = "model"))]
    object: &'static str,
    created: i64,
    owned_by: &'a str,
    /// The model's id, if `id` is an alias of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    alias_of: Option<&'a str>,
    /// Tokens of prompt and output together.
    context_length: u64,
    /// The same, under the name that clients of vLLM read.
    max_model_len: u64,
    /// The same, under the name that clients of the Messages API read.
    max_input_tokens: u64,
    /// Limit of output tokens; absent for a model that generates none.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    /// Reasoning efforts that the model accepts.
    efforts: Vec<&'static str>,
    pricing: Pricing,
}

/// Prices of a model as decimal texts in USD: per token, per image and per request. A model with prices by prompt size
/// shows the prices of its smallest prompts.
#[derive(JsonSchema, Serialize)]
struct Pricing {
    /// USD per token of the prompt.
    prompt: String,
    /// USD per generated token.
    completion: String,
    /// USD per prompt token read from a cache.
    input_cache_read: String,
    /// USD per prompt token written to a cache.
    input_cache_write: String,
    /// USD per image in the prompt, in addition.
    image: String,
    /// USD per request, in addition.
    request: String,
}

impl Pricing {
    fn of(rates: &Rates) -> Self {
        Self {
            prompt: per_token(rates.input),
            completion: per_token(rates.output),
            input_cache_read: per_token(rates.cached_input),
            input_cache_write: per_token(rates.cache_write),
            image: rates.image.to_string(),
            request: rates.request.to_string(),
        }
    }
}

/// Converts a rate per million tokens to exact USD per token.
fn per_token(rate: NanoUsd) -> String {
    // The fifteenth decimal of a US dollar: a nano-USD per million tokens.
    const UNIT: i64 = 1_000_000_000_000_000;
    let (whole, rest) = (rate.nanos() / UNIT, rate.nanos() % UNIT);
    let text = format!("{whole}.{rest:015}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl<'a> ModelObject<'a> {
    /// Describes a model under its id or an alias.
    pub(super) fn new(model: &'a Model, name: &'a str) -> Self {
        let Model { context_window, max_output_tokens, .. } = *model;
        Self {
            id: name,
            object: "model",
            created: model.created,
            owned_by: &model.owned_by,
            alias_of: (name != model.id).then_some(&model.id),
            context_length: context_window,
            max_model_len: context_window,
            max_input_tokens: context_window,
            max_output_tokens: (max_output_tokens > 0).then_some(max_output_tokens),
            efforts: model.efforts.iter().map(|effort| effort.word()).collect(),
            pricing: Pricing::of(&model.price.base),
        }
    }
}

/// A model, with the members of both APIs.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "PagedModel")]
pub(super) struct PagedModel<'a> {
    #[serde(flatten)]
    model: ModelObject<'a>,
    #[schemars(extend("const" = "model"))]
    r#type: &'static str,
    display_name: &'a str,
    created_at: String,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ModelPage")]
pub(super) struct ModelPage<'a> {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<PagedModel<'a>>,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
    has_more: bool,
}

impl<'a> PagedModel<'a> {
    pub(super) fn new(model: ModelObject<'a>) -> Self {
        let created_at = Timestamp::from_millis(model.created.saturating_mul(1000)).to_string();
        Self { display_name: model.id, created_at, r#type: "model", model }
    }
}

/// Returns the page that a query asks for; without a `limit`, all models.
pub(super) fn page<'a>(models: Vec<ModelObject<'a>>, query: Option<&str>) -> Result<ModelPage<'a>, ApiError> {
    let (mut limit, mut after, mut before) = (usize::MAX, None, None);
    for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let place = || {
            let place = models.iter().position(|model| model.id == value);
            place.ok_or_else(|| invalid(&name, "there is no such model in the list"))
        };
        match &*name {
            "limit" => {
                let number = value.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
                limit = number.ok_or_else(|| invalid(&name, "must be an integer from 1 to 1000"))?;
            }
            "after_id" => after = Some(place()?),
            "before_id" => before = Some(place()?),
            _ => {}
        }
    }
    let first = after.map_or(0, |after| after + 1);
    let end = before.unwrap_or(models.len()).max(first);
    // A page before a model ends directly before that model.
    let (start, stop) = match before {
        Some(_) if after.is_none() => (end.saturating_sub(limit), end),
        Some(_) | None => (first, end.min(first.saturating_add(limit))),
    };
    let has_more = start > first || stop < end;
    let data: Vec<_> = models.into_iter().skip(start).take(stop - start).map(PagedModel::new).collect();
    let (first_id, last_id) = (data.first(), data.last());
    let (first_id, last_id) = (first_id.map(|model| model.model.id), last_id.map(|model| model.model.id));
    Ok(ModelPage { object: "list", first_id, last_id, has_more, data })
}

fn invalid(name: &str, problem: &str) -> ApiError {
    ApiError::at(Code::InvalidValue, name, format!("Invalid '{name}': {problem}."))
}

#[cfg(test)]
mod tests {
    use shared_catalog::Catalog;

    use super::*;

    const CATALOGUE: &str = include_str!("../../../config/models.toml");

    fn ids_of(catalog: &Catalog) -> Vec<ModelObject<'_>> {
        ["a", "b", "c", "d", "e"].map(|id| ModelObject::new(&catalog.models[0], id)).into()
    }

    fn ids(query: &str) -> (String, bool) {
        let catalog = Catalog::parse(CATALOGUE, "m").unwrap();
        let page = page(ids_of(&catalog), Some(query)).unwrap();
        assert_eq!(page.first_id, page.data.first().map(|model| model.model.id));
        (page.data.iter().map(|model| model.model.id).collect(), page.has_more)
    }

    #[test]
    fn a_page_begins_after_or_ends_before_a_model() {
        for (query, expected, has_more) in [
            ("", "abcde", false),
            ("limit=2", "ab", true),
            ("limit=2&after_id=b", "cd", true),
            ("limit=2&after_id=d", "e", false),
            ("limit=9&after_id=e", "", false),
            ("limit=2&before_id=d", "bc", true),
            ("before_id=c&x=1", "ab", false),
            ("after_id=a&before_id=e&limit=2", "bc", true),
        ] {
            assert_eq!(ids(query), (expected.to_owned(), has_more), "{query}");
        }
    }

    #[test]
    fn what_names_no_page_is_refused() {
        let catalog = Catalog::parse(CATALOGUE, "m").unwrap();
        for query in ["limit=0", "limit=1001", "limit=x", "after_id=z", "before_id="] {
            assert_eq!(
                page(ids_of(&catalog), Some(query)).err().unwrap().code,
                Code::InvalidValue,
                "{query}"
            );
        }
    }

    #[test]
    fn prices_are_told_per_token_exactly_and_without_an_exponent() {
        for (rate, text) in
            [("0.10", "0.0000001"), ("3", "0.000003"), ("0.000000001", "0.000000000000001"), ("0", "0")]
        {
            assert_eq!(per_token(NanoUsd::parse(rate).unwrap()), text, "{rate}");
        }
        assert_eq!(per_token(NanoUsd::from_usd(2_000_000)), "2");
    }
}
