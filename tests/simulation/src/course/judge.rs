//! Compares what is promised with what has happened.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use domain::{
    ledger::{Budget, Ending, MOST_CARRIED},
    search::EntrySearch,
    usage::Day,
};
use key_service_store::store::{JournalEntry, Store};
use parking_lot::Mutex;
use shared::{
    ids::{AccountId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    wire::Raise,
};
use tests::upstream::{Api, End, Fault, Generation, Told, Usage};
use tokio::time::Instant;

use crate::{
    chance::poll::at_once, client::Outcome, services::key_service::words::usage, trace::tell, world::World,
};

/// Maximum number of journal entries to read. No run produces as many.
const ALL: usize = 10_000;

/// Has all limits checked after every write.
pub(crate) fn after_every_commit(world: &Arc<World>) {
    let (store, account, trace) = (world.present.clone(), world.account, world.trace.clone());
    let keys: Vec<KeyId> = world.keys.lock().iter().map(|key| key.id).collect();
    let groups = world.groups.clone();
    let before = Mutex::new(limited(&store, account, &keys, &groups));
    world.maps.after_each_commit(Box::new(move |judged_at| {
        let Some(funds) = at_once(store.funds(account)).unwrap() else { return };
        if funds.held > funds.credit {
            trace.break_promise(format!("{} are held of a credit of {}", funds.held, funds.credit));
        }
        let (present, mut before) = (limited(&store, account, &keys, &groups), before.lock());
        for (now, before) in present.iter().zip(&*before) {
            if let Err(broken) = limit_holds(&now.budget, &before.budget, judged_at) {
                let (name, now, before) = (&now.name, &now.budget, &before.budget);
                trace.break_promise(format!("{name} {broken}: {now:?} after {before:?}"));
            }
        }
        *before = present;
    }));
}

/// A key or a group, which may have limits.
struct Limited {
    name: String,
    budget: Budget,
}

fn limited(store: &Store, account: AccountId, keys: &[KeyId], groups: &[GroupId]) -> Vec<Limited> {
    let key = |(number, id): (usize, &KeyId)| {
        let key = at_once(store.key(account, *id)).unwrap().unwrap();
        Limited { name: format!("key {number}"), budget: key.spend.budget }
    };
    let group = |id: &GroupId| {
        let group = at_once(store.group(account, *id)).unwrap().unwrap();
        Limited { name: group.name, budget: group.spend.budget }
    };
    keys.iter().enumerate().map(key).chain(groups.iter().map(group)).collect()
}

/// Checks a budget after a commit: what it has spent and holds together must not exceed its limit. A commit carries out
/// several calls, each of which is judged at its own time; `judged_at` is the earliest of these times, and the limit is
/// that of the call with this time. If the limit was lowered or its raise has ended, the budget may stay above it, but
/// must not grow. A raise that has ended for all of the calls must be removed. Otherwise, a process whose clock is
/// behind could apply it again.
fn limit_holds(now: &Budget, before: &Budget, judged_at: Option<Timestamp>) -> Result<(), &'static str> {
    let spent = |budget: &Budget| budget.used.nanos() + budget.held.nanos();
    if spent(now) <= spent(before) {
        return Ok(());
    }
    let raised = |budget: &Budget| budget.bounds.as_ref().and_then(|bounds| bounds.limit_raised);
    let is_over = |raise: &Raise| judged_at.is_some_and(|at| raise.until <= at);
    if raised(now).is_some_and(|raise| is_over(&raise)) {
        return Err("keeps a raise that is over");
    }
    let in_force = raised(before).filter(|raise| !is_over(raise));
    let limit = before.limit.map(|limit| in_force.map_or(limit, |raise| raise.amount));
    if limit.is_some_and(|limit| spent(now) > limit.nanos()) {
        return Err("is beyond its limit");
    }
    Ok(())
}

/// Judges a run after everything has become quiet.
pub(crate) async fn at_the_end(world: &World, faults: usize) {
    books(world).await;
    let journal = world.present.journal(world.account, 0, ALL).await.unwrap().entries;
    for entry in &journal {
        let JournalEntry { number, generation, entry, .. } = entry;
        let bill = &entry.settlement;
        tell!(
            world.trace,
            "entry {number}: {generation} {:?} {}, estimated {}, costs {}, charged {}, change {}",
            bill.ending,
            usage(bill.usage),
            bill.estimated,
            bill.cost,
            bill.charged,
            entry.delta
        );
    }
    let outcomes = world.outcomes.lock().clone();
    bills(world, &journal, &outcomes);
    lists(world, &journal).await;
    revocations(world, &outcomes);
    if faults == 0 {
        calm(world, &outcomes);
    }
    expiries(world, &journal);
}

/// Checks that the books balance and that nothing is held.
async fn books(world: &World) {
    let audit = world.present.audit(world.account).await.unwrap().unwrap();
    for wrong in audit.wrong {
        world.trace.break_promise(format!("the audit finds {wrong:?}"));
    }
    let funds = world.present.funds(world.account).await.unwrap().unwrap();
    if funds.held != NanoUsd::ZERO {
        world.trace.break_promise(format!("{} are held after all leases", funds.held));
    }
}

/// Checks that no entry has an earlier time than the entry before it, unless a clock that was far ahead wrote that
/// entry. Also checks that the lists of all days together contain each entry once.
async fn lists(world: &World, journal: &[JournalEntry]) {
    let at = |entry: &JournalEntry| entry.entry.settlement.at;
    let follows = |before: Timestamp, after: Timestamp| before <= after || before > after.plus(MOST_CARRIED);
    if !journal.is_sorted_by(|before, after| follows(at(before), at(after))) {
        world.trace.break_promise("an entry is earlier than the one before it".into());
    }
    let days: BTreeSet<Day> = journal.iter().map(|entry| Day::of(at(entry))).collect();
    let mut listed = Vec::new();
    for day in days {
        let [begins, ends] = [day, day.plus(1)].map(|day| Some(Timestamp::from_millis(day.millis().0)));
        let search = EntrySearch { begins, ends, ..EntrySearch::default() };
        let mut before = None;
        loop {
            let found = world.present.find_entries(world.account, search.clone(), before, ALL).await.unwrap();
            listed.extend(found.found.iter().map(|entry| entry.number));
            before = found.next;
            if before.is_none() {
                break;
            }
        }
    }
    listed.sort_unstable();
    if !listed.iter().eq(journal.iter().map(|entry| &entry.number)) {
        world.trace.break_promise(format!("lists by day have {} of {} entries", listed.len(), journal.len()));
    }
}

/// Checks that each generation is billed once, and that it is billed for what was served and reported.
fn bills(world: &World, journal: &[JournalEntry], outcomes: &[Outcome]) {
    let mut by_generation: BTreeMap<GenerationId, Vec<&JournalEntry>> = BTreeMap::new();
    for entry in journal {
        by_generation.entry(entry.generation).or_default().push(entry);
    }
    for (generation, entries) in &by_generation {
        let sum: i64 = entries.iter().map(|entry| entry.entry.delta.nanos()).sum();
        let last = &entries[entries.len() - 1].entry.settlement;
        if sum != last.charged.nanos() || last.charged > last.cost {
            world.trace.break_promise(format!(
                "{generation} was billed {sum} n$ in all, and {} at last",
                last.charged
            ));
        }
    }
    let generations: Vec<Generation> =
        world.upstreams.iter().flat_map(|upstream| upstream.generations()).collect();
    let mut attributed = 0;
    for outcome in outcomes {
        let served: Vec<_> =
            generations.iter().filter(|served| served.tag == outcome.plan.script.tag).collect();
        let billed = outcome.generation.and_then(|id| by_generation.get(&id));
        attributed += usize::from(billed.is_some());
        let billed = billed.map(|entries| &entries[entries.len() - 1].entry.settlement);
        let is_estimated = billed.is_some_and(|bill| bill.estimated);
        let (used, charged, cost) =
            billed.map_or_else(Default::default, |bill| (usage(bill.usage), bill.charged, bill.cost));
        let tag = &outcome.plan.script.tag;
        if outcome.cost.is_some_and(|told| told != charged) {
            world.trace.break_promise(format!("{tag} was told {:?} and billed {charged}", outcome.cost));
        }
        if let Some(expected) = exact(outcome, &served) {
            let expected = price(expected);
            if cost != expected {
                world.trace.break_promise(format!("{tag} cost {expected}, and is billed {cost} for {used}"));
            }
            // If the upstream reports more than its limit allows, the bill may be lower than the cost, because it is at
            // most the held amount.
            if charged != cost && outcome.plan.script.told == Told::Truth && world.crashes.lock().is_empty() {
                world.trace.break_promise(format!("{tag} cost {cost}, and is charged {charged}"));
            }
        }
        let most = most(outcome, &served, is_estimated);
        if outcome.generation.is_some() && cost > most {
            world.trace.break_promise(format!("{tag} is billed {cost} for {used}, more than {most}"));
        }
    }
    let unknown = by_generation.len() - attributed;
    let unanswered = outcomes.iter().filter(|outcome| outcome.generation.is_none()).count();
    if unknown > unanswered {
        world
            .trace
            .break_promise(format!("{unknown} bills belong to {unanswered} requests without an answer"));
    }
}

/// Returns the usage that must be billed, if the client received the whole answer and the upstream reported the whole
/// usage. It is what the upstream reported: with [`Told::Truth`], what it served.
fn exact(outcome: &Outcome, served: &[&Generation]) -> Option<Usage> {
    let script = &outcome.plan.script;
    if !outcome.is_complete || script.fault != Fault::None {
        return None;
    }
    let finished = served.iter().find(|served| served.ended_by(End::Finished))?;
    match &script.told {
        Told::Truth => Some(finished.served),
        Told::Lie(told) => Some(*told),
        Told::Nothing | Told::First(_) | Told::Json { .. } => None,
    }
}

/// Returns the highest amount that may be billed for a request. An estimate may be too high, but it never exceeds the
/// held amount.
fn most(outcome: &Outcome, served: &[&Generation], is_estimated: bool) -> NanoUsd {
    let script = &outcome.plan.script;
    if is_estimated {
        return price(Usage { prompt: 2_000, cached: 0, completion: outcome.plan.max_tokens });
    }
    match &script.told {
        Told::Truth => served.iter().map(|served| price(told_first(served))).max().unwrap_or_default(),
        Told::Nothing | Told::Lie(_) | Told::First(_) | Told::Json { .. } => {
            price(Usage { prompt: 2_000, cached: 0, completion: outcome.plan.max_tokens })
        }
    }
}

/// Returns the smallest usage that an upstream reported for what it served. In the Messages API, the first report
/// already contains the prompt and one output token.
fn told_first(served: &Generation) -> Usage {
    let least = u64::from(served.api == Api::Messages);
    let prompt = served.script.prompt_tokens.unwrap_or_default();
    Usage { prompt, cached: 0, completion: served.served.completion.max(least) }
}

/// Returns the price of a usage in the run's catalogue. A million input tokens cost 0.10 USD, and a million output
/// tokens cost 0.40 USD.
fn price(usage: Usage) -> NanoUsd {
    let cached = i64::try_from(usage.cached).unwrap();
    let (prompt, completion) =
        (i64::try_from(usage.prompt).unwrap() - cached, i64::try_from(usage.completion).unwrap());
    NanoUsd::from_nanos(prompt * 100 + cached * 25 + completion * 400)
}

/// Checks that no request was served if it was sent after the revocation of its key had been answered.
fn revocations(world: &World, outcomes: &[Outcome]) {
    let keys = world.keys.lock();
    let revoked: Vec<Option<Instant>> = keys.iter().map(|key| key.revoked).collect();
    drop(keys);
    for outcome in outcomes {
        let is_late = revoked[outcome.plan.key].is_some_and(|revoked| outcome.sent > revoked);
        if is_late && outcome.status == Some(200) {
            world
                .trace
                .break_promise(format!("{} was served after its key's revocation", outcome.plan.script.tag));
        }
    }
}

/// Checks a run without faults: each request must either be served or be refused because money or rate was used up. A
/// request whose upstream fails may get another answer.
fn calm(world: &World, outcomes: &[Outcome]) {
    for outcome in outcomes {
        let script = &outcome.plan.script;
        let in_order = match outcome.status {
            Some(200 | 402 | 429) => true,
            Some(_) => script.fault != Fault::None,
            None => outcome.plan.leaves_after.is_some(),
        };
        if !in_order {
            world.trace.break_promise(format!("{} got {:?} without a fault", script.tag, outcome.status));
        }
    }
}

/// Checks that no hold expires if no gateway was killed: gateways renew their holds, and no fault lasts as long as a
/// lease.
fn expiries(world: &World, journal: &[JournalEntry]) {
    let expired = journal.iter().filter(|entry| entry.entry.settlement.ending == Ending::Expired);
    if world.crashes.lock().is_empty() {
        for entry in expired {
            world.trace.break_promise(format!("{} expired although its gateway lived", entry.generation));
        }
    }
}
