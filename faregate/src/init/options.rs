//! Flags of `faregate init`, and which of them are missing.

use std::path::PathBuf;

use clap::Args;
use shared::money::NanoUsd;
use shared_catalog::{RATES, Rates, WrittenRates};

const LISTS: &str = "Public price lists, for --prices:
  LiteLLM     https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json
  models.dev  https://github.com/anomalyco/models.dev/tree/dev/providers, one file VENDOR/models/MODEL.toml per model

On a terminal, init asks for whatever the flags leave open.";

#[derive(Args, Debug)]
#[command(after_help = LISTS)]
pub(crate) struct InitOptions {
    /// Vendor or local server, such as openai, anthropic, azure or vllm; an unknown name lists all vendors
    #[arg(long, value_name = "NAME")]
    pub(super) vendor: Option<String>,
    /// Base address with its /v1; not needed for a vendor's usual address. Without --vendor, the server's list of
    /// models shows which kind of server it is
    #[arg(long, value_name = "URL")]
    pub(super) address: Option<String>,
    /// The server's name for the model; an unknown name lists the models that the server has
    #[arg(long, value_name = "MODEL")]
    pub(super) model: Option<String>,
    /// Environment variable with the credential, if it is not the vendor's usual one
    #[arg(long, value_name = "VARIABLE")]
    pub(super) api_key_env: Option<String>,
    #[command(flatten)]
    pub(super) price: PriceOptions,
    /// Context window: tokens of prompt and output together. Needed if neither the server nor a price list states it
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) context_window: Option<u64>,
    /// Maximum number of tokens in an answer
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) max_output_tokens: Option<u64>,
    /// File to write; an existing file is never overwritten
    #[arg(long, value_name = "FILE", default_value = "models.toml")]
    pub(super) out: PathBuf,
    /// Before writing the file, send one request of at most 16 tokens and show its cost
    #[arg(long)]
    pub(super) check: bool,
}

/// Flags for the model's price.
#[derive(Args, Debug)]
#[group(multiple = false)]
pub(crate) struct PriceOptions {
    /// Public price list: LiteLLM's .json, or a model's .toml from models.dev
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// USD per million tokens, such as input=3,output=15,cached_input=0.30
    #[arg(long = "price", value_name = "RATES", value_parser = rates)]
    rates: Option<WrittenRates>,
    /// Sell the model for free
    #[arg(long)]
    free: bool,
}

/// Source of a model's price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PriceSource {
    /// A file of a public price list.
    List(PathBuf),
    Rates(WrittenRates),
    Free,
}

impl InitOptions {
    /// Lists the flags that are still needed if there is no terminal.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let needed = [
            (self.vendor.is_none() && self.address.is_none(), "--vendor or --address"),
            (self.model.is_none(), "--model"),
            (self.price.source().is_none(), "--prices, --price or --free"),
        ];
        needed.into_iter().filter_map(|(is_missing, flag)| is_missing.then_some(flag)).collect()
    }
}

impl PriceOptions {
    /// Returns the source of the price, if a flag names one.
    pub(super) fn source(&self) -> Option<PriceSource> {
        let Self { prices, rates, free } = self;
        let named = prices.clone().map(PriceSource::List).or(rates.map(PriceSource::Rates));
        named.or(free.then_some(PriceSource::Free))
    }
}

impl PriceSource {
    /// Parses an answer: `free`, a file, or rates.
    pub(super) fn parse(answer: &str) -> Result<Self, String> {
        let is_list = |extension: &str| answer.ends_with(extension);
        match answer {
            "free" => Ok(Self::Free),
            _ if is_list(".json") || is_list(".toml") => Ok(Self::List(answer.into())),
            _ => rates(answer).map(Self::Rates),
        }
    }
}

/// Parses rates: names of the catalogue's price fields with amounts in USD.
fn rates(text: &str) -> Result<WrittenRates, String> {
    let mut rates = [None; RATES];
    for pair in text.split(',') {
        let Some((name, amount)) = pair.split_once('=') else {
            return Err(format!(
                "\"{pair}\" is not a rate such as input=3; to sell for nothing, answer free"
            ));
        };
        let field = Rates::FIELDS.iter().position(|field| *field == name.trim());
        let field = field.ok_or_else(|| format!("there is no rate \"{name}\"; the rates are {}", names()))?;
        let amount = NanoUsd::parse(amount.trim()).map_err(|e| format!("{name} {e}"))?;
        if !(NanoUsd::ZERO..=NanoUsd::MAX).contains(&amount) {
            return Err(format!("{name} must be 0 to {} USD", NanoUsd::MAX));
        }
        if rates[field].replace(amount).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    // Input and output have no default, so both are required.
    match [0, 2].into_iter().find(|field| rates[*field].is_none()) {
        Some(field) => Err(format!("{} is missing: USD per million tokens", Rates::FIELDS[field])),
        None => Ok(rates),
    }
}

fn names() -> String {
    Rates::FIELDS.join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Binary {
        #[command(flatten)]
        options: InitOptions,
    }

    fn parsed(words: &str) -> Result<InitOptions, String> {
        let words = ["faregate"].into_iter().chain(words.split_whitespace());
        Binary::try_parse_from(words).map(|binary| binary.options).map_err(|e| e.to_string())
    }

    #[test]
    fn flags_that_are_missing_are_named() {
        let missing = |words: &str| parsed(words).unwrap().missing();
        assert_eq!(missing(""), ["--vendor or --address", "--model", "--prices, --price or --free"]);
        assert_eq!(missing("--vendor openai --model m"), ["--prices, --price or --free"]);
        for price in ["--free", "--prices a.json", "--price input=1,output=2"] {
            assert_eq!(missing(&format!("--address http://a --model m {price}")), [""; 0]);
        }
        assert!(parsed("--free --prices a.json").unwrap_err().contains("cannot be used with"));
    }

    #[test]
    fn rates_are_read_by_name_and_what_is_wrong_with_them_is_said() {
        let read = |text: &str| rates(text).map(|rates| rates.map(|rate| rate.map(NanoUsd::nanos)));
        let three = read("input=3, output=15,cached_input=0.30").unwrap();
        assert_eq!(three[..3], [Some(3_000_000_000), Some(300_000_000), Some(15_000_000_000)]);
        assert!(three[3..].iter().all(Option::is_none));
        for (text, expected) in [
            ("input=3", "output is missing"),
            ("output=3", "input is missing"),
            ("input=3,output", "is not a rate such as input=3"),
            ("input=3,outputs=4", "there is no rate \"outputs\"; the rates are input, cached_input"),
            ("input=-3,output=4", "input must be 0 to"),
            ("input=x,output=4", "input is not a number"),
            ("input=3,output=4,input=3", "input is given twice"),
        ] {
            assert!(read(text).unwrap_err().contains(expected), "{text}");
        }
    }

    #[test]
    fn an_answer_is_a_file_or_rates_or_free() {
        assert_eq!(PriceSource::parse("free"), Ok(PriceSource::Free));
        assert_eq!(PriceSource::parse("a/prices.json"), Ok(PriceSource::List("a/prices.json".into())));
        assert_eq!(PriceSource::parse("m.toml"), Ok(PriceSource::List("m.toml".into())));
        assert!(matches!(PriceSource::parse("input=1,output=2"), Ok(PriceSource::Rates(_))));
        assert!(PriceSource::parse("cheap").is_err());
    }
}
