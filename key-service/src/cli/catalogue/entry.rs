//! An entry of the catalogue, as TOML for a person to read and complete.

use std::fmt::Write;

use shared::catalog::{RATES, Rates};

use super::price_list::Listed;

/// The entry of a model: with a markup its costs, otherwise its price.
pub(super) fn of(listed: &Listed, markup: Option<&str>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, listed, markup);
    text
}

fn write(out: &mut String, listed: &Listed, markup: Option<&str>) -> std::fmt::Result {
    let Listed { id, owner, context_window, max_output_tokens, embeddings, .. } = listed;
    writeln!(out, "[[model]]\nid = {}", quoted(id))?;
    writeln!(out, "owned_by = {}", quoted(owner.as_deref().unwrap_or("unknown")))?;
    if *embeddings {
        writeln!(out, "serves = [\"embeddings\"]")?;
    }
    number(out, "context_window", *context_window)?;
    if !embeddings {
        number(out, "max_output_tokens", *max_output_tokens)?;
    }
    match markup {
        Some(factor) => writeln!(out, "markup = \"{factor}\"")?,
        None => tables(out, "model.price", listed)?,
    }
    writeln!(out, "\n[[model.upstream]]\nkind = \"openai\"")?;
    writeln!(out, "url = \"\"  # its address, such as https://api.openai.com/v1; refused while it is empty")?;
    writeln!(out, "model = {}", quoted(id))?;
    writeln!(out, "api_key_env = \"UPSTREAM_KEY\"  # the environment variable that holds its credential")?;
    if markup.is_some() {
        tables(out, "model.upstream.cost", listed)?;
    }
    writeln!(out)
}

fn number(out: &mut String, name: &str, value: Option<u64>) -> std::fmt::Result {
    match value {
        Some(value) => writeln!(out, "{name} = {value}"),
        None => writeln!(out, "# {name} = …  # required; the list does not say"),
    }
}

/// Writes a table of rates and those of its tiers.
fn tables(out: &mut String, name: &str, listed: &Listed) -> std::fmt::Result {
    let Listed { price, rates: named, left_out, .. } = listed;
    let notes = [
        (!named[1], "cached_input: the list has no price; what is read from a cache costs as much as input"),
        (
            named[3] && !named[4],
            "cache_write_long: the list has no price; Anthropic, for one, bills twice the input",
        ),
    ];
    writeln!(out, "\n[{name}]")?;
    for (_, note) in notes.iter().filter(|(applies, _)| *applies) {
        writeln!(out, "# {note}")?;
    }
    if !left_out.is_empty() {
        writeln!(out, "# not taken over, since no field bills it: {}", left_out.join(", "))?;
    }
    rates(out, price.base, named)?;
    for tier in &price.tiers {
        writeln!(out, "\n[[{name}.above]]\nprompt_tokens = {}", tier.above)?;
        rates(out, tier.rates, named)?;
    }
    Ok(())
}

/// Writes the rates that the list names somewhere, and those without a default. Tiers repeat them, so that none is taken
/// from the table before.
fn rates(out: &mut String, rates: Rates, named: &[bool; RATES]) -> std::fmt::Result {
    for (field, rate) in rates.to_array().into_iter().enumerate() {
        if named[field] || field < 3 {
            writeln!(out, "{} = \"{rate}\"", Rates::FIELDS[field])?;
        }
    }
    Ok(())
}

/// A text as a string of TOML, whose escapes are JSON's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
