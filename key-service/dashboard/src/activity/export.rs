//! Encodes journal entries as lines of CSV or JSON.

use serde::{Serialize, Serializer};
use shared::{money::NanoUsd, tokens::UsageDetails};

use domain::ledger::Settlement;
use key_service_page::csv::cell;
use key_service_store::store::JournalEntry;

/// Names of the CSV columns and the JSON members. Scripts rely on the names: add names, but never rename one. Only
/// owners get the last column.
const NAMES: [&str; 35] = [
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
    "request_id",
    "group",
    "parent_group",
    "upstream_cost",
];

#[derive(Serialize)]
#[serde(untagged)]
enum Cell<'a> {
    /// A text that someone chose, which CSV has to escape.
    Text(&'a str),
    /// A time, an id, or a fixed word, which needs no escaping.
    Plain(String),
    Number(u64),
    Amount(NanoUsd),
    Flag(bool),
    Nothing,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ExportLines {
    /// Upstream costs are for owners only.
    pub(super) with_upstream_cost: bool,
}

/// Names of an entry's key and groups. A name that is unknown is empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryNames<'a> {
    pub(super) label: &'a str,
    pub(super) groups: [&'a str; 2],
}

fn values<'a>(entry: &'a JournalEntry, names: EntryNames<'a>) -> [Cell<'a>; NAMES.len()] {
    let settlement = &entry.entry.settlement;
    let Settlement { payer, usage, cost, upstream_cost, charged, ending, estimated, at, origin, course } =
        settlement;
    let (origin, course) = (origin.as_deref(), course.as_deref());
    let milliseconds = |of: Option<u64>| of.map_or(Cell::Nothing, Cell::Number);
    let word = |word: &'static str| Cell::Plain(word.into());
    let UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output } =
        usage.details;
    let [group, parent] = payer.groups.map(|id| id.map_or(Cell::Nothing, |id| Cell::Plain(id.to_string())));
    [
        Cell::Number(entry.number),
        Cell::Plain(at.to_string()),
        // A late capture does not bill its generation, so the column is empty.
        if ending.is_bill() { Cell::Plain(entry.generation.to_string()) } else { Cell::Nothing },
        Cell::Plain(payer.key.to_string()),
        Cell::Text(names.label),
        Cell::Text(&payer.model),
        Cell::Number(usage.prompt),
        Cell::Number(usage.cached),
        Cell::Number(usage.completion),
        Cell::Amount(*cost),
        Cell::Amount(*charged),
        Cell::Amount(entry.entry.delta),
        Cell::Amount(settlement.shortfall()),
        Cell::Plain(ending.as_str().into()),
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
        settlement.request().map_or(Cell::Nothing, |request| Cell::Plain(request.to_string())),
        Cell::Text(names.groups[0]),
        Cell::Text(names.groups[1]),
        upstream_cost.map_or(Cell::Nothing, Cell::Amount),
    ]
}

impl ExportLines {
    const fn width(self) -> usize {
        if self.with_upstream_cost { NAMES.len() } else { NAMES.len() - 1 }
    }

    /// Returns the line with the column names.
    pub(super) fn csv_head(self) -> String {
        NAMES[..self.width()].join(",") + "\r\n"
    }

    /// Adds an entry as a CSV line (RFC 4180).
    pub(super) fn csv(self, out: &mut String, entry: &JournalEntry, names: EntryNames<'_>) {
        let cells = values(entry, names).into_iter().take(self.width()).map(|value| match value {
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

    /// Adds an entry as a JSON line.
    pub(super) fn json(self, out: &mut String, entry: &JournalEntry, names: EntryNames<'_>) {
        struct Line<'a>(&'a [Cell<'a>]);
        impl Serialize for Line<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(NAMES.iter().zip(self.0))
            }
        }
        match serde_json::to_string(&Line(&values(entry, names)[..self.width()])) {
            Ok(line) => {
                out.push_str(&line);
                out.push('\n');
            }
            Err(error) => tracing::error!(%error, "an entry could not be written as JSON"),
        }
    }
}
