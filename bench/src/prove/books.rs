//! Compares three records of the same load, to the nano-dollar: the journal's, the upstream's and the clients'.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use http::Method;
use serde_json::Value;
use shared::{money::NanoUsd, time::Timestamp};
use tests::{
    harness::{Account, FLASH, Stack, cost, cost_of, nanos},
    upstream::{Count, End},
};

use super::{
    faults::Happened,
    load::Sent,
    population::Population,
    report::{Difference, Found, Sums},
    stage::Stage,
    wire::Ask,
};

/// How long after the end of an answer a fault may still affect it. If the client has left, its capture may not have
/// been confirmed yet.
const AFTER_THE_END: Duration = Duration::from_secs(5);

/// A generation in the journal, with amounts in nano-USD.
pub(super) struct Entry {
    generation: String,
    key: usize,
    prompt: u64,
    pub(super) charged: i64,
    pub(super) shortfall: i64,
    estimated: bool,
}

/// A request, as the journal, the upstream and the client know it. Amounts are in nano-USD.
pub(super) struct Line {
    pub(super) key: usize,
    /// Cost of what the upstream generated.
    pub(super) generated: i64,
    /// Whether the request reached the upstream.
    pub(super) asked: bool,
    pub(super) charged: i64,
    pub(super) shortfall: i64,
    /// Whether the answer was delivered only in part, so that the bill may be lower than the cost of what was
    /// generated.
    pub(super) is_cut: bool,
}

/// What is known about a finished round, for the comparison.
pub(super) struct Round<'a> {
    pub(super) stack: &'a Stack,
    pub(super) stage: Stage,
    pub(super) population: &'a Population,
    pub(super) sent: &'a [Sent],
    pub(super) happened: &'a [Happened],
    /// The account whose keys the garbage carries.
    pub(super) garbage: &'a Account,
}

/// Compares what the journal, the upstream and the clients say about each request of a round.
pub(super) fn compare(round: &Round<'_>) -> (Found, Vec<Line>) {
    let mut found = Found::default();
    let counts = round.stack.upstream.counts();
    let mut generated: HashMap<u64, Vec<&Count>> = HashMap::new();
    let mut by_others = 0;
    for count in &counts {
        match Ask::number_in(&count.tag) {
            Some(number) => generated.entry(number).or_default().push(count),
            None => by_others += cost(FLASH, count.served).nanos(),
        }
    }
    let entries = entries(round);
    let by_id: HashMap<&str, usize> =
        entries.iter().enumerate().map(|(place, entry)| (entry.generation.as_str(), place)).collect();
    let mut by_prompt: HashMap<(usize, u64), Vec<usize>> = HashMap::new();
    for (place, entry) in entries.iter().enumerate() {
        by_prompt.entry((entry.key, entry.prompt)).or_default().push(place);
    }
    let mut known: HashSet<usize> = HashSet::new();
    let mut lines = Vec::with_capacity(round.sent.len());
    for sent in round.sent {
        let mut of_request: HashSet<usize> = HashSet::new();
        of_request.extend(sent.got.generation.as_deref().and_then(|id| by_id.get(id)));
        if !sent.after_revocation {
            of_request.extend(by_prompt.get(&(sent.key, sent.ask.prompt)).into_iter().flatten());
        }
        known.extend(&of_request);
        let of_request: Vec<&Entry> = of_request.into_iter().map(|place| &entries[place]).collect();
        let served = generated.get(&sent.ask.number).map_or(&[][..], Vec::as_slice);
        lines.push(judge(sent, &of_request, served, round, &mut found));
    }
    for (place, entry) in entries.iter().enumerate() {
        if !known.contains(&place) && entry.charged > 0 {
            found
                .doubled
                .add(entry.charged, || format!("{} was billed, and nobody sent it", entry.generation));
        }
    }
    let charged = charged(round.stack, round.garbage);
    if charged > by_others {
        found.doubled.add(charged - by_others, || "garbage was billed for more than was generated".into());
    }
    (found, lines)
}

/// Compares the lists of bills for two periods with the journal of each account. The journal's entries must be sorted
/// by time. One period ends at the instant at which the other starts, and each bill must be in exactly one of the two
/// lists.
pub(super) async fn compare_lists(stack: &Stack, population: &Population, found: &mut Found) {
    for Account { name, management_key } in population.tenants.iter().map(|tenant| &tenant.account) {
        let printed = stack.cli(&["journal", "export", "--account", name]);
        let entries: Vec<Value> =
            printed.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let at = |entry: &Value| Timestamp::parse(entry["at"].as_str().unwrap_or_default());
        if !entries.is_sorted_by_key(at) {
            found.unbalanced.add(0, || format!("{name}: an entry is earlier than the one before it"));
        }
        let Some(edge) = entries.get(entries.len() / 2).and_then(|entry| entry["at"].as_str()) else {
            continue;
        };
        let billed: BTreeSet<&str> =
            entries.iter().filter_map(|entry| entry["generation_id"].as_str()).collect();
        let mut listed = Vec::new();
        for part in ["end", "start"] {
            let url = stack.url(&format!("/v1/management/generations?{part}={edge}"));
            let answer = stack.http.send_as(management_key, Method::GET, &url, None).await.json();
            let ids = answer["data"].as_array().into_iter().flatten().filter_map(|bill| bill["id"].as_str());
            listed.extend(ids.map(str::to_owned));
        }
        listed.sort_unstable();
        if !listed.iter().map(String::as_str).eq(billed.iter().copied()) {
            found.unbalanced.add(0, || {
                format!(
                    "{name}: lists before and after {edge} have {} of {} bills",
                    listed.len(),
                    billed.len()
                )
            });
        }
    }
}

/// Returns the journal's entries for all keys that the load uses.
fn entries(round: &Round<'_>) -> Vec<Entry> {
    let keys = round.population.keys.read().unwrap();
    let numbers: HashMap<&str, usize> =
        keys.iter().enumerate().map(|(number, key)| (key.made.id.as_str(), number)).collect();
    let journals = round.population.tenants.iter().flat_map(|tenant| round.stack.journal(&tenant.account));
    let entry = |entry: Value| {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        Entry {
            generation: text("generation_id").to_owned(),
            key: numbers.get(text("key_id")).copied().unwrap_or(usize::MAX),
            prompt: entry["prompt_tokens"].as_u64().unwrap_or_default(),
            charged: nanos(&entry["charged"]).nanos(),
            shortfall: nanos(&entry["shortfall"]).nanos(),
            estimated: entry["estimated"] == true,
        }
    };
    journals.map(entry).collect()
}

/// Returns what an account was charged, except for estimates. Garbage makes upstreams fail, and they then report no
/// usage.
fn charged(stack: &Stack, account: &Account) -> i64 {
    let journal = stack.journal(account);
    let told = journal.iter().filter(|entry| entry["estimated"] != true);
    told.map(|entry| nanos(&entry["charged"]).nanos()).sum()
}

/// Compares one request. A complete answer must be billed exactly the cost of what was generated, and an answer that
/// was cut off at most that cost.
fn judge(sent: &Sent, entries: &[&Entry], served: &[&Count], round: &Round<'_>, found: &mut Found) -> Line {
    let (got, sums) = (&sent.got, &mut found.sums);
    let generated: i64 = served.iter().map(|count| cost(FLASH, count.served).nanos()).sum();
    let charged: i64 = entries.iter().map(|entry| entry.charged).sum();
    let shortfall: i64 = entries.iter().map(|entry| entry.shortfall).sum();
    let estimated = entries.iter().any(|entry| entry.estimated);
    let stopped =
        served.last().is_some_and(|count| count.ended.is_some_and(|(end, _)| end == End::ClientLeft));
    let hit = round.happened.iter().any(|fault| fault.cuts(sent.gateway, sent.from, sent.to + AFTER_THE_END));
    let lost_with_master =
        round.stage.loses() && round.happened.iter().any(|fault| fault.loses(sent.from, sent.to));
    let received = cost_of(sent.ask.prompt, got.received).nanos();
    let name = || {
        format!(
            "request {} at gateway {}: answered {}{}, {generated} n$ generated, {charged} n$ billed, {shortfall} n$ recorded as shortfall, {:?}{}",
            sent.ask.number,
            sent.gateway,
            got.status,
            if got.complete { " to its end" } else { "" },
            got.generation,
            got.failure.as_deref().unwrap_or_default(),
        )
    };
    sums.count(sent, generated, charged);
    let is_undone =
        round.stage.loses() && round.happened.iter().any(|fault| fault.loses(fault.from, sent.from));
    if sent.after_revocation && is_undone {
        // The replica that took over had not received the revocation.
        found.sums.revocations_lost += u64::from(got.status == 200);
    } else if sent.after_revocation && (got.status == 200 || !served.is_empty()) {
        found.after_revocation.add(generated, name);
    }
    if let Some(told) = got.told
        && told.nanos() != charged
        && !(lost_with_master && charged < told.nanos())
    {
        found.told_otherwise.add(told.nanos() - charged, name);
    }
    let lacking = generated - charged - shortfall;
    if lacking < 0 {
        if estimated && !got.complete {
            found.sums.estimated_above -= lacking;
        } else {
            found.doubled.add(-lacking, name);
        }
    } else if lacking > 0 {
        let is_answered = got.status == 200;
        let delivered = is_answered && got.received > 0 && charged + shortfall < received;
        if lost_with_master {
            found.sums.lost_with_masters += lacking;
            found.sums.lost_charges += u64::from(got.complete && !stopped);
        } else if (got.complete && !stopped) || (delivered && !hit) {
            found.lost.add(lacking, name);
        } else if hit {
            found.sums.cut_by_faults += lacking;
        } else if is_answered {
            found.sums.on_their_way += lacking;
        } else {
            found.sums.served_in_vain += lacking;
        }
    }
    if charged > 0 && !matches!(got.status, 0 | 200) {
        found.doubled.add(charged, || format!("{}, a refusal", name()));
    }
    if !matches!(got.status, 0 | 200 | 401 | 402 | 429 | 500..) {
        found.unexpected.add(0, name);
    }
    found.sums.shortfall += shortfall;
    let is_cut = !got.complete || stopped || lost_with_master;
    Line { key: sent.key, generated, asked: !served.is_empty(), charged, shortfall, is_cut }
}

/// Returns each account's credit and the sum of its holds, as the command line shows them, by the account's name.
pub(super) fn balances(stack: &Stack) -> HashMap<String, (NanoUsd, NanoUsd)> {
    let (status, printed, _) = stack.operator().try_cli(&["accounts", "list", "--json"]);
    if !status.success() {
        return HashMap::new();
    }
    let listed: Value = serde_json::from_str(&printed).unwrap_or_default();
    let one = |account: &Value| {
        let name = account["name"].as_str().unwrap_or_default().to_owned();
        (name, (nanos(&account["credit"]), nanos(&account["held"])))
    };
    listed.as_array().into_iter().flatten().map(one).collect()
}

impl Sums {
    fn count(&mut self, sent: &Sent, generated: i64, charged: i64) {
        self.requests += 1;
        self.complete += u64::from(sent.got.complete);
        self.after_revocation += u64::from(sent.after_revocation);
        self.generated += generated;
        self.charged += charged;
        self.told += sent.got.told.map_or(0, NanoUsd::nanos);
    }
}

impl Difference {
    /// Adds an amount in nano-USD. Keeps the descriptions of the first few cases.
    pub(super) fn add(&mut self, amount: i64, what: impl FnOnce() -> String) {
        self.count += 1;
        self.amount += amount;
        if self.shown.len() < Self::SHOWN {
            self.shown.push(what());
        }
    }
}
