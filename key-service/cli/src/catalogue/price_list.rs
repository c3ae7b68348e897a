//! Public price lists: models.dev's files, and LiteLLM's.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use serde::Deserialize;
use serde_json::{Map, Value};
use shared::{bounded_file, money::NanoUsd};
use shared_catalog::{Preset, Price, RATES, Rates, Tier, WrittenRates, continued};

/// Maximum size of a price list in bytes: many times the size of LiteLLM's.
const MAX_LIST: usize = 64 << 20;

/// Names of the rates in models.dev's files, in the order of [`Rates::FIELDS`]; empty for rates that those files do not
/// have.
const MODELS_DEV: [&str; RATES] =
    ["input", "cache_read", "output", "cache_write", "", "reasoning", "input_audio", "output_audio", "", ""];
/// Names of the rates in LiteLLM's list.
const LITELLM: [&str; RATES] = [
    "input_cost_per_token",
    "cache_read_input_token_cost",
    "output_cost_per_token",
    "cache_creation_input_token_cost",
    "cache_creation_input_token_cost_above_1hr",
    "output_cost_per_reasoning_token",
    "input_cost_per_audio_token",
    "output_cost_per_audio_token",
    "input_cost_per_image",
    "input_cost_per_request",
];
/// LiteLLM's name for rates by prompt size.
const TIERS: &str = "tiered_pricing";
/// Index of the first rate that is not a price per token.
const FIRST_PER_UNIT: usize = 8;

/// Format of a public list of prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// models.dev: a TOML file for each model
    #[value(name = "models.dev")]
    ModelsDev,
    /// LiteLLM: one JSON file, model_prices_and_context_window.json
    #[value(name = "litellm")]
    LiteLlm,
}

impl Format {
    /// Recognises the format by the file's extension.
    pub(crate) fn of(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()? {
            "toml" => Some(Self::ModelsDev),
            "json" => Some(Self::LiteLlm),
            _ => None,
        }
    }
}

pub enum PriceList {
    ModelsDev {
        /// Name of the file, without its extension.
        id: String,
        /// Name of the vendor's folder, if the file is in one.
        owner: Option<String>,
        model: ModelsDev,
    },
    /// All models, by id.
    LiteLlm(Map<String, Value>),
}

/// A model, as a price list describes it.
pub struct ListedModel {
    pub id: String,
    pub owner: Option<String>,
    /// Maximum number of tokens of prompt and output together.
    pub context_window: Option<u64>,
    /// Maximum number of output tokens.
    pub max_output_tokens: Option<u64>,
    /// Whether the model computes embeddings.
    pub embeddings: bool,
    pub price: Price,
    /// Which rates the list has for this model, in the order of [`Rates::FIELDS`]. The other rates get defaults.
    pub rates: [bool; RATES],
    /// Prices in the list that the catalogue cannot express.
    pub left_out: Vec<String>,
}

impl ListedModel {
    /// Creates a model with these rates and without sizes. Rates for input and output are required. Without a separate
    /// rate, cached input costs as much as other input.
    pub fn at_rates(id: &str, rates: WrittenRates) -> anyhow::Result<Self> {
        RatesRead { base: rates, ..RatesRead::default() }.finish(id, false)
    }
}

/// The members of a models.dev file that the import reads.
#[derive(Deserialize)]
pub struct ModelsDev {
    cost: Option<toml::Table>,
    #[serde(default)]
    limit: ListedLimit,
}

#[derive(Default, Deserialize)]
struct ListedLimit {
    context: Option<u64>,
    output: Option<u64>,
}

impl PriceList {
    /// Reads a list in the format that its file extension implies.
    pub fn open(file: &Path) -> anyhow::Result<Self> {
        let format = Format::of(file).context("the file's name ends neither in .toml nor in .json")?;
        Self::read(file, format)
    }

    pub(crate) fn read(file: &Path, format: Format) -> anyhow::Result<Self> {
        let text = bounded_file::read_text(file, MAX_LIST)?;
        // Some editors start a file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        Ok(match format {
            Format::LiteLlm => Self::LiteLlm(serde_json::from_str(text)?),
            Format::ModelsDev => {
                let name = |path: &Path| Some(path.file_stem()?.to_str()?.to_owned());
                // The path is `providers/OWNER/models/ID.toml`.
                let folders =
                    file.parent().filter(|folder| folder.ends_with("models")).and_then(Path::parent);
                Self::ModelsDev {
                    id: name(file).context("the file's name is not an id")?,
                    owner: folders.and_then(name),
                    model: toml::from_str(text)?,
                }
            }
        })
    }

    /// Finds the vendor's model with this name. Most ids in LiteLLM's list begin with the vendor's name, so equally
    /// named models of different vendors are not confused.
    pub fn model_of(&self, vendor: &Preset, name: &str) -> anyhow::Result<Option<ListedModel>> {
        if let Self::ModelsDev { id, .. } = self {
            let is_named = name == id || name.rsplit('/').next() == Some(id.as_str());
            return if is_named { self.model(id) } else { Ok(None) };
        }
        for listed_as in &vendor.listed_as {
            if let Some(listed) = self.model(&format!("{listed_as}/{name}"))? {
                return Ok(Some(listed));
            }
        }
        let is_vendors =
            |listed: &ListedModel| listed.owner.as_ref().is_some_and(|owner| vendor.is_listed_as(owner));
        let plain = self.model(name)?;
        Ok(plain.filter(|listed| vendor.listed_as.is_empty() || is_vendors(listed)))
    }

    /// Finds the model with this id. A listed model without a usable price is an error.
    pub(crate) fn model(&self, id: &str) -> anyhow::Result<Option<ListedModel>> {
        match self {
            Self::ModelsDev { id: stem, owner, model } if stem == id => {
                models_dev(id, owner.as_deref(), model).map(Some)
            }
            Self::ModelsDev { .. } => Ok(None),
            Self::LiteLlm(models) => match models.get(id) {
                Some(Value::Object(model)) => litellm(id, model).map(Some),
                Some(_) => bail!("it is not an object"),
                None => Ok(None),
            },
        }
    }
}

fn models_dev(id: &str, owner: Option<&str>, model: &ModelsDev) -> anyhow::Result<ListedModel> {
    let cost = model.cost.as_ref().context("it has no [cost]")?;
    let mut read = RatesRead::default();
    read.models_dev_table(None, cost)?;
    let tiers = cost.get("tiers").and_then(toml::Value::as_array);
    for tier in tiers.into_iter().flatten() {
        let tier = tier.as_table().context("a tier is not a table")?;
        let size = tier.get("tier").and_then(|tier| tier.get("size")).and_then(toml::Value::as_integer);
        let border = size.and_then(|size| u64::try_from(size).ok()).context("a tier has no size")?;
        read.models_dev_table(Some(border), tier)?;
    }
    // Older files write their only tier like this. Newer files repeat a tier like this in addition to `tiers`.
    if let (None, Some(tier)) = (tiers, cost.get("context_over_200k").and_then(toml::Value::as_table)) {
        read.models_dev_table(Some(200_000), tier)?;
    }
    Ok(ListedModel {
        owner: owner.map(str::to_owned),
        context_window: model.limit.context,
        max_output_tokens: model.limit.output,
        ..read.finish(id, false)?
    })
}

fn litellm(id: &str, model: &Map<String, Value>) -> anyhow::Result<ListedModel> {
    let mut read = RatesRead::default();
    // If the model also has rates outside of its tiers, its tiers are left out.
    let tiers = model.get(TIERS).and_then(Value::as_array).filter(|_| !model.contains_key(LITELLM[0]));
    for tier in tiers.into_iter().flatten() {
        read.litellm_tier(tier.as_object().context("a tier is not an object")?)?;
    }
    for (name, value) in model.iter().filter(|(name, _)| tiers.is_none() || *name != TIERS) {
        let (rate, border) = above(name).map_or((name.as_str(), None), |(rate, border)| (rate, Some(border)));
        match (LITELLM.iter().position(|known| *known == rate), value.as_f64()) {
            (Some(field), Some(number)) => {
                let per_million = if field < FIRST_PER_UNIT { "e6" } else { "" };
                read.put(border, field, &format!("{number}{per_million}")).with_context(|| name.clone())?;
            }
            (Some(_), None) => bail!("{name} is not a number"),
            // An unknown rate of zero can be ignored. Any other unknown rate may be billed, so the entry names it in a
            // comment.
            (None, number) if name.contains("cost") || name.contains("pricing") => {
                if number != Some(0.0) {
                    read.left_out.push(name.clone());
                }
            }
            (None, _) => {}
        }
    }
    let text = |name: &str| model.get(name).and_then(Value::as_str);
    let count = |name: &str| model.get(name).and_then(Value::as_u64);
    Ok(ListedModel {
        owner: text("litellm_provider").map(str::to_owned),
        context_window: count("max_input_tokens").or_else(|| count("max_tokens")),
        max_output_tokens: count("max_output_tokens").or_else(|| count("max_tokens")),
        ..read.finish(id, text("mode") == Some("embedding"))?
    })
}

/// Splits `…_above_200k_tokens` into the rate's name and the tier's boundary.
fn above(name: &str) -> Option<(&str, u64)> {
    let (rate, thousands) = name.strip_suffix("k_tokens")?.rsplit_once("_above_")?;
    Some((rate, thousands.parse::<u64>().ok()?.checked_mul(1_000)?))
}

#[derive(Default)]
struct RatesRead {
    base: WrittenRates,
    tiers: BTreeMap<u64, WrittenRates>,
    left_out: Vec<String>,
}

impl RatesRead {
    /// Adds a tier of LiteLLM's list. A tier covers a range of prompt sizes; the range of the first tier starts at 0.
    fn litellm_tier(&mut self, tier: &Map<String, Value>) -> anyhow::Result<()> {
        let from = tier.get("range").and_then(|range| range.get(0)).and_then(Value::as_f64);
        let from = from.filter(|from| *from >= 0.0 && from.fract() == 0.0).context("a tier has no range")?;
        let border = format!("{from:.0}").parse::<u64>()?;
        let border = (border > 0).then_some(border);
        for (field, name) in LITELLM.iter().enumerate().take(FIRST_PER_UNIT) {
            if let Some(value) = tier.get(*name) {
                let number = value.as_f64().with_context(|| format!("{name} is not a number"))?;
                self.put(border, field, &format!("{number}e6")).with_context(|| (*name).to_owned())?;
            }
        }
        Ok(())
    }

    fn models_dev_table(&mut self, border: Option<u64>, table: &toml::Table) -> anyhow::Result<()> {
        for (name, value) in table {
            let whole = value.as_integer().map(|number| number.to_string());
            let number = whole.or_else(|| value.as_float().map(|number| number.to_string()));
            match (MODELS_DEV.iter().position(|known| known == name), number) {
                (Some(field), Some(number)) => {
                    self.put(border, field, &number).with_context(|| name.clone())?;
                }
                (Some(_), None) => bail!("{name} is not a number"),
                (None, _) if matches!(name.as_str(), "tier" | "tiers" | "context_over_200k") => {}
                (None, _) => self.left_out.push(name.clone()),
            }
        }
        Ok(())
    }

    /// Adds a rate in decimal notation. Callers pass the shortest decimals that represent a float, which are what the
    /// list's author wrote.
    fn put(&mut self, border: Option<u64>, field: usize, decimals: &str) -> anyhow::Result<()> {
        let rate = NanoUsd::parse(decimals)?;
        if !(NanoUsd::ZERO..=NanoUsd::MAX).contains(&rate) {
            bail!("is negative or too high");
        }
        let rates = border.map_or(&mut self.base, |border| self.tiers.entry(border).or_default());
        rates[field] = Some(rate);
        Ok(())
    }

    /// Creates a model with these prices. If cached input has no price, it costs as much as other input.
    fn finish(self, id: &str, embeddings: bool) -> anyhow::Result<ListedModel> {
        let Self { base, tiers, left_out } = self;
        let resolve = |mut written: WrittenRates| {
            let [input, cached_input, output, ..] = &mut written;
            *cached_input = cached_input.or(*input);
            *output = output.or(embeddings.then_some(NanoUsd::ZERO));
            Rates::resolve(written).ok_or_else(|| anyhow!("it has no price per token"))
        };
        let mut price = Price::flat(resolve(base)?);
        let (mut before, mut rates) = (base, base.map(|rate| rate.is_some()));
        for (above, own) in tiers {
            before = continued(before, own);
            rates = std::array::from_fn(|field| before[field].is_some());
            price.tiers.push(Tier { above, rates: resolve(before)? });
        }
        Ok(ListedModel {
            id: id.to_owned(),
            owner: None,
            context_window: None,
            max_output_tokens: None,
            embeddings,
            price,
            rates,
            left_out,
        })
    }
}
