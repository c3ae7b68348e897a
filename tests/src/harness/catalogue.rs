//! The tests' catalogue of models, and an independent calculation of the cost of requests.

use shared::money::NanoUsd;

use crate::upstream::Usage;

/// The model that most tests request.
pub const FLASH: &str = "Model Flash";
pub const MAX: &str = "Model Max";

/// Prices per million tokens of input, cached input and output.
const PRICES: [(&str, [&str; 3]); 2] = [(FLASH, ["0.10", "0.025", "0.40"]), (MAX, ["1.00", "0.25", "4.00"])];

/// Models that a stack offers.
pub enum Models {
    /// Both models at the scripted upstream.
    Scripted,
    /// Both models at the scripted upstream, with these additional lines.
    With(&'static str),
    /// Both models, at another address.
    At(String),
    /// Both models, at another address and at the scripted upstream.
    Also(String),
    /// Both models at the scripted upstream and at another address, each with additional lines.
    Apart { scripted: &'static str, other: String, lines: &'static str },
    /// This catalogue, with `{url}` in place of the scripted upstream's address.
    Text(&'static str),
    /// No configuration: the model built into the binary.
    Builtin,
}

impl Models {
    /// Returns the catalogue's text for upstreams of this kind. `scripted` is the scripted upstream's address.
    pub fn catalogue(&self, kind: &str, scripted: &str) -> Option<String> {
        // Allows image URLs from anywhere, except in tests about which URLs are allowed.
        let usual = "image_urls = \"any\"";
        let upstreams = match self {
            Self::Scripted => vec![(scripted, usual)],
            Self::With(lines) => vec![(scripted, *lines)],
            Self::At(url) => vec![(url.as_str(), usual)],
            Self::Also(url) => vec![(url.as_str(), usual), (scripted, usual)],
            Self::Apart { scripted: own, other, lines } => vec![(other.as_str(), *lines), (scripted, *own)],
            Self::Text(text) => return Some(text.replace("{url}", scripted)),
            Self::Builtin => return None,
        };
        let service =
            "[service]\nname = \"Faregate\"\nprovider = \"Model\"\ndocs = \"https://docs.example.com\"\n";
        let models = PRICES.map(|(id, [input, cached_input, output])| {
            let model = format!(
                r#"
[[model]]
id = "{id}"
owned_by = "model-service"
context_window = 1048576
max_output_tokens = 131072
max_tokens_per_image = 16384
extra_params = ["top_k"]

[model.price]
input = "{input}"
cached_input = "{cached_input}"
output = "{output}"
"#
            );
            let name = id.replace(' ', "-").to_lowercase();
            let upstream = |(url, lines): &(&str, &str)| {
                format!(
                    r#"
[[model.upstream]]
kind = "{kind}"
url = "{url}"
model = "scripted/{name}"
api_key_env = "UPSTREAM_KEY"
{lines}
"#
                )
            };
            model + &upstreams.iter().map(upstream).collect::<String>()
        });
        Some(format!("{service}{}", models.concat()))
    }
}

/// Returns the cost of this usage: `ceil(((prompt − cached)·input + cached·cached_input + completion·output) / 10⁶)`.
pub fn cost(model: &str, usage: Usage) -> NanoUsd {
    let (_, prices) = PRICES.iter().find(|(id, _)| *id == model).expect("the model has a price");
    let [input, cached_input, output] =
        prices.map(|price| i128::from(NanoUsd::parse(price).unwrap().nanos()));
    let cached = usage.cached.min(usage.prompt);
    let total = i128::from(usage.prompt - cached) * input
        + i128::from(cached) * cached_input
        + i128::from(usage.completion) * output;
    NanoUsd::from_nanos(i64::try_from((total + 999_999) / 1_000_000).unwrap())
}

/// Returns the cost of this many prompt and completion tokens with [`FLASH`].
pub fn cost_of(prompt: u64, completion: u64) -> NanoUsd {
    cost(FLASH, Usage { prompt, cached: 0, completion })
}
