//! The command that compares the journal with an upstream's own record: `audit --against`.

mod comparison;

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Write},
    ops::RangeInclusive,
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Serialize};
use shared::{
    bounded_file,
    ids::{AccountId, GenerationId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::output::{EXPORTED_AT_ONCE, write_json_object};
use key_service_management::Management;
use key_service_store::store::JournalEntry;

use comparison::{Billed, Comparison, Difference, Served, ServedIdentity, Tokens, Totals, compare, span};

#[derive(Deserialize)]
struct RecordLine {
    id: Option<String>,
    time: Option<String>,
    prompt_tokens: u64,
    completion_tokens: u64,
}

/// Compares the file with these accounts' journals, and writes the differences and totals. Fails if there is a
/// difference.
pub(crate) async fn run(
    file: &Path,
    accounts: Vec<AccountId>,
    tolerance: Duration,
    json: bool,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let served = read(file).with_context(|| format!("--against {}", file.display()))?;
    let scope = CompareScope::of(&served, tolerance);
    let mut billed = HashMap::new();
    for account in accounts {
        collect(account, &scope, management, &mut billed).await?;
    }
    let billed: Vec<_> = billed.into_values().collect();
    let comparison = compare(&served, &billed, tolerance);
    if json {
        write_json_object(out, &ComparisonJson::of(&comparison))?;
    } else {
        for difference in &comparison.differences {
            writeln!(out, "{}", sentence(difference))?;
        }
        writeln!(out, "served: {}", totals(&comparison.served))?;
        writeln!(out, "billed: {}", totals(&comparison.billed))?;
    }
    match comparison.differences.len() {
        0 => Ok(()),
        n => bail!("the journal differs from the upstream's record (differences: {n})"),
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<Served>> {
    let mut served = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(bounded_file::open(file)?).lines()) {
        let line = line?;
        if !line.trim().is_empty() {
            served.push(parse(&line).with_context(|| format!("line {number}"))?);
        }
    }
    Ok(served)
}

fn parse(line: &str) -> anyhow::Result<Served> {
    let RecordLine { id, time, prompt_tokens, completion_tokens } = serde_json::from_str(line)?;
    let generation = id.as_deref().and_then(|id| id.parse().ok());
    let identity = match (generation, time) {
        (Some(generation), _) => ServedIdentity::Generation(generation),
        // If there is a time, `id` is the upstream's own id, in whatever format.
        (None, Some(time)) => ServedIdentity::Time(
            Timestamp::parse(&time)
                .ok_or_else(|| anyhow!("`time` is not a time such as 2026-11-21T12:00:00Z"))?,
        ),
        (None, None) => bail!("has neither the `id` of a generation (gen_…) nor a `time`"),
    };
    Ok(Served { identity, tokens: Tokens { prompt: prompt_tokens, completion: completion_tokens } })
}

/// The generations to compare: those that the upstream names, and those billed during the time of its record.
struct CompareScope {
    named: HashSet<GenerationId>,
    span: Option<RangeInclusive<Timestamp>>,
}

impl CompareScope {
    fn of(served: &[Served], tolerance: Duration) -> Self {
        let named = served.iter().filter_map(|served| match served.identity {
            ServedIdentity::Generation(generation) => Some(generation),
            ServedIdentity::Time(_) => None,
        });
        let span = span(served).map(|of| of.start().minus(tolerance)..=of.end().plus(tolerance));
        Self { named: named.collect(), span }
    }

    fn has(&self, billed: &Billed) -> bool {
        let meets = |span: &RangeInclusive<Timestamp>| {
            billed.generation.created_at() <= *span.end() && *span.start() <= billed.at
        };
        self.named.contains(&billed.generation) || self.span.as_ref().is_some_and(meets)
    }
}

/// Collects the last entry of each generation within the scope.
async fn collect(
    account: AccountId,
    scope: &CompareScope,
    management: &Management,
    billed: &mut HashMap<GenerationId, Billed>,
) -> anyhow::Result<()> {
    let mut after = 0;
    loop {
        let page = management.journal(account, after, EXPORTED_AT_ONCE).await?;
        if page.gone_until > after {
            tracing::warn!(
                %account,
                up_to = page.gone_until,
                "the store has dropped journal entries, so requests that they billed are listed as not billed"
            );
        }
        for JournalEntry { number, generation, entry, .. } in &page.entries {
            let settlement = &entry.settlement;
            let tokens = Tokens { prompt: settlement.usage.prompt, completion: settlement.usage.completion };
            let (charged, estimated) = (settlement.charged, settlement.estimated);
            let bill = Billed { generation: *generation, at: settlement.at, tokens, charged, estimated };
            // A late capture is not a bill.
            let is_bill = settlement.ending.is_bill();
            if is_bill && (scope.has(&bill) || billed.contains_key(generation)) {
                billed.insert(*generation, bill);
            }
            after = *number;
        }
        if page.entries.len() < EXPORTED_AT_ONCE {
            return Ok(());
        }
    }
}

fn sentence(difference: &Difference) -> String {
    match difference {
        Difference::NotBilled(Served { identity: ServedIdentity::Generation(generation), tokens }) => {
            format!("served, not billed: {generation}: {}", counted(tokens))
        }
        Difference::NotBilled(Served { identity: ServedIdentity::Time(time), tokens }) => {
            format!("served, not billed: at {time}: {}", counted(tokens))
        }
        Difference::BilledDifferently(served, billed) => {
            let (generation, counts) = (billed.generation, counted(&billed.tokens));
            let estimated = if billed.estimated { " (estimated)" } else { "" };
            format!(
                "billed differently: {generation}: served {}; billed {counts}{estimated}",
                counted(served)
            )
        }
        Difference::NotServed(Billed { generation, at, tokens, charged, .. }) => {
            format!("billed, not served: {generation} at {at}: {}, {charged} USD", counted(tokens))
        }
    }
}

fn counted(Tokens { prompt, completion }: &Tokens) -> String {
    format!("prompt {prompt}, completion {completion}")
}

fn totals(Totals { requests, prompt, completion }: &Totals) -> String {
    format!("requests {requests}, prompt tokens {prompt}, completion tokens {completion}")
}

/// A comparison in JSON. Scripts rely on the names: add names, but never rename one.
#[derive(Serialize)]
struct ComparisonJson {
    equal: bool,
    served: TotalsJson,
    billed: TotalsJson,
    differences: Vec<DifferenceJson>,
}

/// Sums of requests and tokens.
#[derive(Serialize)]
struct TotalsJson {
    requests: u64,
    prompt_tokens: u64,
    completion_tokens: u64,
}

/// A difference. `served` or `billed` is null if that side does not have the generation.
#[derive(Serialize)]
struct DifferenceJson {
    kind: &'static str,
    generation_id: Option<GenerationId>,
    time: Option<Timestamp>,
    served: Option<TokensJson>,
    billed: Option<TokensJson>,
    charged: Option<NanoUsd>,
    estimated: Option<bool>,
}

#[derive(Serialize)]
struct TokensJson {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl ComparisonJson {
    fn of(Comparison { served, billed, differences }: &Comparison) -> Self {
        Self {
            equal: differences.is_empty(),
            served: TotalsJson::of(*served),
            billed: TotalsJson::of(*billed),
            differences: differences.iter().map(DifferenceJson::of).collect(),
        }
    }
}

impl TotalsJson {
    fn of(Totals { requests, prompt, completion }: Totals) -> Self {
        Self { requests, prompt_tokens: prompt, completion_tokens: completion }
    }
}

impl DifferenceJson {
    fn of(difference: &Difference) -> Self {
        let (kind, served, billed) = match difference {
            Difference::NotBilled(served) => ("not_billed", Some(served.tokens), None),
            Difference::BilledDifferently(served, billed) => {
                ("billed_differently", Some(*served), Some(billed))
            }
            Difference::NotServed(billed) => ("not_served", None, Some(billed)),
        };
        let (generation_id, time) = match difference {
            Difference::NotBilled(Served { identity: ServedIdentity::Generation(generation), .. }) => {
                (Some(*generation), None)
            }
            Difference::NotBilled(Served { identity: ServedIdentity::Time(time), .. }) => (None, Some(*time)),
            Difference::BilledDifferently(_, billed) | Difference::NotServed(billed) => {
                (Some(billed.generation), Some(billed.at))
            }
        };
        let tokens = |Tokens { prompt, completion }| TokensJson {
            prompt_tokens: prompt,
            completion_tokens: completion,
        };
        Self {
            kind,
            generation_id,
            time,
            served: served.map(tokens),
            billed: billed.map(|billed| tokens(billed.tokens)),
            charged: billed.map(|billed| billed.charged),
            estimated: billed.map(|billed| billed.estimated),
        }
    }
}
