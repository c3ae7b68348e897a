//! Entries of the journal as lines of a file.

use std::fmt::Write;

use serde::Serialize;
use shared::{
    ids::{GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::{domain::ledger::Ending, store::JournalEntry};

/// The first line of a table.
pub(super) const CSV_HEAD: &str = "number,time,generation_id,key_id,label,model,prompt_tokens,cached_tokens,\
     completion_tokens,cost,charged,change,shortfall,ending,estimated\r\n";

/// An entry as JSON. The names are relied on: add, never rename.
#[derive(Serialize)]
struct Line<'a> {
    number: u64,
    time: Timestamp,
    generation_id: GenerationId,
    key_id: KeyId,
    label: &'a str,
    model: &'a str,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    cost: NanoUsd,
    charged: NanoUsd,
    change: NanoUsd,
    shortfall: NanoUsd,
    ending: &'static str,
    estimated: bool,
}

impl<'a> Line<'a> {
    fn of(entry: &'a JournalEntry, label: &'a str) -> Self {
        let settlement = &entry.entry.settlement;
        Self {
            number: entry.number,
            time: settlement.at,
            generation_id: entry.generation,
            key_id: settlement.key,
            label,
            model: &settlement.model,
            prompt_tokens: settlement.usage.prompt,
            cached_tokens: settlement.usage.cached,
            completion_tokens: settlement.usage.completion,
            cost: settlement.cost,
            charged: settlement.charged,
            change: entry.entry.delta,
            shortfall: settlement.shortfall(),
            ending: match settlement.ending {
                Ending::Captured => "captured",
                Ending::Expired => "expired",
            },
            estimated: settlement.estimated,
        }
    }
}

/// Adds an entry as a line of JSON.
pub(super) fn json(out: &mut String, entry: &JournalEntry, label: &str) {
    match serde_json::to_string(&Line::of(entry, label)) {
        Ok(line) => {
            out.push_str(&line);
            out.push('\n');
        }
        Err(error) => tracing::error!(%error, "an entry could not be written as JSON"),
    }
}

/// Adds an entry as a line of a table (RFC 4180).
pub(super) fn csv(out: &mut String, entry: &JournalEntry, label: &str) {
    let line = Line::of(entry, label);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\r\n",
        line.number,
        line.time,
        line.generation_id,
        line.key_id,
        cell(line.label),
        cell(line.model),
        line.prompt_tokens,
        line.cached_tokens,
        line.completion_tokens,
        line.cost,
        line.charged,
        line.change,
        line.shortfall,
        line.ending,
        line.estimated,
    );
}

/// A text in a cell. Spreadsheets take what begins so for a formula, and a quotation mark before it for a text.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠']);
    let quote = if is_formula { "'" } else { "" };
    format!("\"{quote}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_or_leaves_its_place() {
        for (text, written) in [
            ("Customer A", "\"Customer A\""),
            ("=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("a\",\"b", "\"a\"\",\"\"b\""),
        ] {
            assert_eq!(cell(text), written);
        }
    }
}
