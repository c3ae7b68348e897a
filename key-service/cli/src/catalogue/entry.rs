//! A catalogue entry in TOML, for a person to read and complete.

use std::fmt::Write;

use shared::text::shown;
use shared_catalog::{Preset, RATES, Rates};

use super::price_list::ListedModel;

/// Maximum length in characters of the list of prices that no field can express.
const MAX_LEFT_OUT: usize = 1_000;

/// Fields that a preset may set, each with the comment that explains the field in an entry.
const NOTES: [(&str, &str); 10] = [
    ("api_key_env", "the environment variable that holds its credential"),
    ("auth", "the header of the credential"),
    ("speaks", "APIs it speaks; other requests are translated"),
    ("limit_param", "the server's name for the output limit of chats"),
    ("reasoning_param", "the server's name for the reasoning of earlier answers in chats"),
    ("call_ids", "it accepts only call ids of nine letters and digits"),
    ("thought_signatures", "it needs its own signature back with each call"),
    ("left_before_head", "it bills prompts even if the client has left"),
    ("left_mid_stream", "it bills reasoning that no event shows, so streams are read to the end"),
    ("image_urls", "it gets images only inside requests, never as addresses"),
];

/// A model for the catalogue, and its server.
pub struct CatalogueEntry<'a> {
    /// The model's sizes and prices in the list. The model's id is the name that clients send.
    pub listed: &'a ListedModel,
    /// The server's vendor or software; `None` if a person has to write the address.
    pub preset: Option<&'a Preset>,
    /// The server's own name for the model.
    pub upstream_model: &'a str,
    /// Factor that turns the listed costs into prices. Without a factor, the listed prices are the model's prices.
    pub markup: Option<&'a str>,
}

impl CatalogueEntry<'_> {
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let ListedModel { id, owner, context_window, max_output_tokens, embeddings, .. } = self.listed;
        writeln!(out, "[[model]]\nid = {}", quoted(id))?;
        writeln!(out, "owned_by = {}", quoted(owner.as_deref().unwrap_or("unknown")))?;
        if *embeddings {
            writeln!(out, "serves = [\"embeddings\"]")?;
        }
        number(out, "context_window", *context_window)?;
        if !embeddings {
            number(out, "max_output_tokens", *max_output_tokens)?;
            if let Some(efforts) = self.preset.and_then(Preset::efforts_field) {
                writeln!(
                    out,
                    "efforts = {efforts}  # values for the reasoning effort; keep those that the model accepts"
                )?;
            }
        }
        match self.markup {
            Some(factor) => writeln!(out, "markup = \"{factor}\"")?,
            None => tables(out, "model.price", self.listed)?,
        }
        self.write_upstream(out)?;
        if self.markup.is_some() {
            tables(out, "model.upstream.cost", self.listed)?;
        }
        writeln!(out)
    }

    fn write_upstream(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n[[model.upstream]]")?;
        let Some(preset) = self.preset else {
            writeln!(out, "kind = \"openai\"")?;
            writeln!(
                out,
                "url = \"\"  # the server's address, such as https://api.openai.com/v1; must not stay empty"
            )?;
            writeln!(out, "model = {}", quoted(self.upstream_model))?;
            return writeln!(
                out,
                "api_key_env = \"UPSTREAM_KEY\"  # the environment variable that holds its credential"
            );
        };
        for (name, value) in preset.upstream_fields() {
            write!(out, "{name} = {value}")?;
            let note = NOTES.iter().find_map(|(noted, note)| (*noted == name).then_some(*note));
            match (name, preset.blank(), note) {
                ("url", Some(blank), _) => writeln!(out, "  # replace {blank} with your own value")?,
                (_, _, Some(note)) => writeln!(out, "  # {note}")?,
                (_, _, None) => writeln!(out)?,
            }
            if name == "url" {
                writeln!(out, "model = {}", quoted(self.upstream_model))?;
            }
        }
        preset.hint.as_ref().map_or(Ok(()), |hint| writeln!(out, "# {hint}"))
    }
}

fn number(out: &mut String, name: &str, value: Option<u64>) -> std::fmt::Result {
    match value {
        Some(value) => writeln!(out, "{name} = {value}"),
        None => writeln!(out, "# {name} = …  # required; the list does not have it"),
    }
}

/// Writes a table of rates and the tables of its tiers.
fn tables(out: &mut String, name: &str, listed: &ListedModel) -> std::fmt::Result {
    let ListedModel { price, rates: named, left_out, .. } = listed;
    let notes = [
        (!named[1], "cached_input: no price is listed; tokens read from a cache cost as much as input"),
        (
            named[3] && !named[4],
            "cache_write_long: no price is listed; Anthropic, for example, bills twice the input price",
        ),
    ];
    writeln!(out, "\n[{name}]  # USD per million tokens")?;
    for (_, note) in notes.iter().filter(|(applies, _)| *applies) {
        writeln!(out, "# {note}")?;
    }
    if !left_out.is_empty() {
        let left_out = shown(&left_out.join(", "), MAX_LEFT_OUT);
        writeln!(out, "# not imported, since the catalogue has no field for it: {left_out}")?;
    }
    rates(out, price.base, named)?;
    for tier in &price.tiers {
        writeln!(out, "\n[[{name}.above]]\nprompt_tokens = {}", tier.above)?;
        rates(out, tier.rates, named)?;
    }
    Ok(())
}

/// Writes the rates that the list has for this model, and the rates that have no default. Every tier has all of these
/// rates, so that it inherits no rate from the previous tier.
fn rates(out: &mut String, rates: Rates, named: &[bool; RATES]) -> std::fmt::Result {
    for (field, rate) in rates.to_array().into_iter().enumerate() {
        if named[field] || field < 3 {
            writeln!(out, "{} = \"{rate}\"", Rates::FIELDS[field])?;
        }
    }
    Ok(())
}

/// Writes a TOML string. Its escapes are the same as in JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
