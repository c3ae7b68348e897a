//! Entries of the journal as lines of a file.

use std::fmt::Write;

use serde::Serialize;
use shared::{
    ids::{GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::store::JournalEntry;
use domain::ledger::Ending;

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
            key_id: settlement.payer.key,
            label,
            model: &settlement.payer.model,
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

/// Characters that spreadsheets take for the beginning of a formula.
const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];

/// Characters behind which a cell may begin: separators, quotes and line breaks of any spreadsheet's settings.
const CELL_ENDS: [char; 7] = [',', ';', '\t', '"', '\'', '\n', '\r'];

/// A text in a cell. A spreadsheet takes a formula with an apostrophe before it for a text. Where another separator is set than
/// the comma, it finds cells within the text, so that formulas are marked at every place where a cell may begin.
fn cell(text: &str) -> String {
    let (mut cell, mut may_begin) = (String::with_capacity(text.len() + 2), true);
    cell.push('"');
    for c in text.chars() {
        if may_begin && FORMULA.contains(&c) {
            cell.push('\'');
        }
        if c == '"' {
            cell.push('"');
        }
        cell.push(c);
        // Blanks before a formula are passed over.
        may_begin = CELL_ENDS.contains(&c) || (may_begin && c.is_whitespace());
    }
    cell.push('"');
    cell
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
            ("a;=1+1;b-c", "\"a;'=1+1;b-c\""),
            ("a;\"=LEN(\")+1;b", "\"a;\"\"'=LEN(\"\")+1;b\""),
            ("a,@x\t+1", "\"a,'@x\t'+1\""),
            ("a\n=1\r\n-2", "\"a\n'=1\r\n'-2\""),
            ("a;  ＝1", "\"a;  '＝1\""),
            ("2026-11-20", "\"2026-11-20\""),
        ] {
            assert_eq!(cell(text), written);
        }
    }

    /// Cells of a line for a program that separates by `separator`, and reads quotes if `minds_quotes`.
    fn cells(line: &str, separator: char, minds_quotes: bool) -> Vec<String> {
        let (mut cells, mut is_quoted) = (vec![String::new()], false);
        for c in line.chars() {
            match c {
                '"' if minds_quotes => is_quoted = !is_quoted,
                '"' => {}
                c if !is_quoted && (c == separator || c == '\n') => cells.push(String::new()),
                c => cells.last_mut().unwrap().push(c),
            }
        }
        cells
    }

    proptest! {
        #[test]
        fn no_program_finds_a_formula_in_a_text(text in "[=+@;,\"' \t\r\na-]{0,12}") {
            let line = format!("1,{},2", cell(&text));
            for (separator, minds_quotes) in
                [(',', true), (',', false), (';', true), (';', false), ('\t', true), ('\t', false)]
            {
                for cell in cells(&line, separator, minds_quotes) {
                    prop_assert!(!cell.trim_start().starts_with(FORMULA), "{:?} in {:?}", cell, line);
                }
            }
        }
    }
}
