//! Writes entries of the journal as lines of a file.

use serde::{Serialize, Serializer};
use shared::{money::NanoUsd, tokens::UsageDetails};

use domain::ledger::{Ending, Settlement};
use key_service_store::store::JournalEntry;

/// Names of the columns, and of the members of a JSON line. Scripts rely on the names: add, never rename. Only owners
/// get the last one.
const NAMES: [&str; 32] = [
    "number",
    "time",
    "generation_id",
    "key_id",
    "label",
    "model",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "cost",
    "charged",
    "change",
    "shortfall",
    "ending",
    "estimated",
    "group_id",
    "parent_group_id",
    "cache_write_tokens",
    "cache_write_long_tokens",
    "audio_input_tokens",
    "images",
    "reasoning_tokens",
    "audio_output_tokens",
    "dialect",
    "stream",
    "user",
    "upstream",
    "finish_reason",
    "authorized_ms",
    "first_token_ms",
    "latency_ms",
    "upstream_cost",
];

/// A value of a line.
#[derive(Serialize)]
#[serde(untagged)]
enum Cell<'a> {
    /// A text that somebody chose, so it may be anything.
    Text(&'a str),
    /// A time, an id or a word of ours.
    Plain(String),
    Number(u64),
    Amount(NanoUsd),
    Flag(bool),
    Nothing,
}

/// Writes entries of the journal as lines, with or without the upstreams' charges.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExportLines {
    pub(super) with_upstream_cost: bool,
}

fn values<'a>(entry: &'a JournalEntry, label: &'a str) -> [Cell<'a>; NAMES.len()] {
    let settlement = &entry.entry.settlement;
    let Settlement { payer, usage, cost, upstream_cost, charged, ending, estimated, at, origin, course } =
        settlement;
    let (origin, course) = (origin.as_deref(), course.as_deref());
    let milliseconds = |of: Option<u64>| of.map_or(Cell::Nothing, Cell::Number);
    let word = |word: &'static str| Cell::Plain(word.into());
    let UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output } =
        usage.details;
    let ending = match ending {
        Ending::Captured => "captured",
        Ending::Expired => "expired",
    };
    let [group, parent] = payer.groups.map(|id| id.map_or(Cell::Nothing, |id| Cell::Plain(id.to_string())));
    [
        Cell::Number(entry.number),
        Cell::Plain(at.to_string()),
        Cell::Plain(entry.generation.to_string()),
        Cell::Plain(payer.key.to_string()),
        Cell::Text(label),
        Cell::Text(&payer.model),
        Cell::Number(usage.prompt),
        Cell::Number(usage.cached),
        Cell::Number(usage.completion),
        Cell::Amount(*cost),
        Cell::Amount(*charged),
        Cell::Amount(entry.entry.delta),
        Cell::Amount(settlement.shortfall()),
        Cell::Plain(ending.into()),
        Cell::Flag(*estimated),
        group,
        parent,
        Cell::Number(cache_write),
        Cell::Number(cache_write_long),
        Cell::Number(audio_input),
        Cell::Number(images),
        Cell::Number(reasoning),
        Cell::Number(audio_output),
        origin.map_or(Cell::Nothing, |origin| word(origin.api.as_str())),
        origin.map_or(Cell::Nothing, |origin| Cell::Flag(origin.stream)),
        settlement.user().map_or(Cell::Nothing, Cell::Text),
        settlement.upstream().map_or(Cell::Nothing, Cell::Text),
        course.and_then(|course| course.finish_reason).map_or(Cell::Nothing, |reason| word(reason.as_str())),
        milliseconds(course.and_then(|course| course.authorized_ms)),
        milliseconds(course.and_then(|course| course.first_token_ms)),
        milliseconds(course.and_then(|course| course.latency_ms)),
        upstream_cost.map_or(Cell::Nothing, Cell::Amount),
    ]
}

impl ExportLines {
    const fn width(self) -> usize {
        if self.with_upstream_cost { NAMES.len() } else { NAMES.len() - 1 }
    }

    /// The first line of a table.
    pub(super) fn csv_head(self) -> String {
        NAMES[..self.width()].join(",") + "\r\n"
    }

    /// Adds an entry as a line of a table (RFC 4180).
    pub(super) fn csv(self, out: &mut String, entry: &JournalEntry, label: &str) {
        let cells = values(entry, label).into_iter().take(self.width()).map(|value| match value {
            Cell::Text(text) => cell(text),
            Cell::Plain(text) => text,
            Cell::Number(number) => number.to_string(),
            Cell::Amount(amount) => amount.to_string(),
            Cell::Flag(flag) => flag.to_string(),
            Cell::Nothing => String::new(),
        });
        out.push_str(&cells.collect::<Vec<_>>().join(","));
        out.push_str("\r\n");
    }

    /// Adds an entry as a line of JSON.
    pub(super) fn json(self, out: &mut String, entry: &JournalEntry, label: &str) {
        struct Line<'a>(&'a [Cell<'a>]);
        impl Serialize for Line<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(NAMES.iter().zip(self.0))
            }
        }
        match serde_json::to_string(&Line(&values(entry, label)[..self.width()])) {
            Ok(line) => {
                out.push_str(&line);
                out.push('\n');
            }
            Err(error) => tracing::error!(%error, "an entry could not be written as JSON"),
        }
    }
}

/// Characters with which spreadsheets let a formula begin.
const FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];

/// Characters after which a cell may begin: separators, quotes and line breaks of any spreadsheet's settings.
const CELL_ENDS: [char; 7] = [',', ';', '\t', '"', '\'', '\n', '\r'];

/// Writes a text for a cell. A spreadsheet takes a formula with an apostrophe before it for a text. If its separator is
/// not the comma, it finds cells within the text, so formulas are marked wherever a cell may begin.
pub(crate) fn cell(text: &str) -> String {
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
        // Spreadsheets skip blanks before a formula.
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
