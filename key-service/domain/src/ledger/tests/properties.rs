//! Random histories: the invariants of the ledger hold at every step.

use std::collections::HashMap;

use proptest::prelude::*;
use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    wire::Raise,
};

use crate::{
    books::{
        audit::{AuditedEntry, Auditor, BudgetOwner},
        usage::{COUNTED, Counts},
    },
    ledger::{
        Bounds, Budget, Command, Ending, MOST_TAKEN, Outcome, Payer, Record, RecordId, Refused, Window,
        bounds::plus,
        histories::{START, Step, World, history},
    },
};

proptest! {
    #[test]
    fn the_books_balance_after_every_command(history in history()) {
        let (mut world, mut now) = (World::new(), START);
        for step in history {
            match step {
                Step::Clock(clock) => now = clock.after(now),
                Step::Update(account, key, patch) => drop(world.update(account, key, &patch, now)),
                Step::Rotate(new) => world.rotate(&new, now),
                Step::Revoke(account, key) => world.revoke(account, key, now),
                Step::UpdateGroup(account, group, patch) => {
                    world.update_group(account, group, &patch, now);
                }
                Step::Archive(account, group) => world.archive(account, group, now),
                Step::Stand(account, act) => world.stand(account, &act, now),
                Step::Execute(account, commands) => for command in commands {
                    let before = world.clone();
                    let outcome = world.apply(account, &command, now);
                    unchanged_if_nothing_happened(&before, &world, &outcome)?;
                    nothing_overspent(&before, &world, now)?;
                    windows_count_what_was_billed_in_them(&before, &world, now)?;
                    requests_in_flight_are_open_holds(&world)?;
                    every_sum_adds_up(&world)?;
                    billed_is_billed(&before, &world)?;
                    again_is_the_same(&world, account, &command, now, outcome)?;
                },
            }
        }
        every_account_passes_an_audit(&world)?;
        counters_are_the_sums_of_their_payers(&world)?;
    }
}

fn every_account_passes_an_audit(world: &World) -> Result<(), TestCaseError> {
    for (account, money) in &world.accounts {
        let mut auditor = Auditor::new(true);
        let journal = world.trails.get(account).into_iter().flat_map(|trail| &trail.journal);
        for (number, (_, entry)) in (1..).zip(journal) {
            auditor.entry(AuditedEntry::of(number, entry));
        }
        for ((_, id), key) in world.keys.iter().filter(|((of, _), _)| of == account) {
            let holds = world.booked(*account, |payer| payer.key == *id).0;
            auditor.budget(BudgetOwner::Key(*id), &key.budget, NanoUsd::ZERO, holds);
        }
        for ((_, id), group) in world.groups.iter().filter(|((of, _), _)| of == account) {
            let holds = world.booked(*account, |payer| payer.is_in(*id)).0;
            auditor.budget(BudgetOwner::Group(*id), &group.budget, NanoUsd::ZERO, holds);
        }
        let held = world.booked(*account, |_| true).0;
        let audit = auditor.account(*money, held, [world.deposited(*account)].into_iter());
        prop_assert_eq!(audit.wrong, []);
    }
    Ok(())
}

/// Checks that the daily counters add up to the settlements of each payer, unless a counter has reached its maximum.
fn counters_are_the_sums_of_their_payers(world: &World) -> Result<(), TestCaseError> {
    let mut sums: HashMap<(AccountId, &Payer), [i128; 4]> = HashMap::new();
    for ((account, _), record) in &world.records {
        let Record::Closed(settlement) = record else { continue };
        let known = settlement.upstream_cost.map(|cost| (cost, settlement.charged)).unwrap_or_default();
        let amounts = [settlement.charged, known.0, known.1].map(|amount| i128::from(amount.nanos()));
        let sum = sums.entry((*account, &settlement.payer)).or_default();
        for (sum, amount) in sum.iter_mut().zip(std::iter::once(1).chain(amounts)) {
            *sum += amount;
        }
    }
    for (account, trail) in &world.trails {
        let mut counted: HashMap<&Payer, [i128; 4]> = HashMap::new();
        for ((_, payer), counts) in &trail.counted {
            let Counts { requests, charged, upstream_cost, charged_at_known_cost, .. } = &counts.of;
            let amounts = [charged, upstream_cost, charged_at_known_cost];
            let amounts = amounts.map(|amount| i128::from(amount.nanos()));
            let sum = counted.entry(payer).or_default();
            for (sum, amount) in sum.iter_mut().zip(std::iter::once(i128::from(*requests)).chain(amounts)) {
                *sum += amount;
            }
        }
        for (payer, sum) in counted {
            let expected = sums[&(*account, payer)];
            let at_bound = expected.iter().any(|amount| *amount >= i128::from(COUNTED));
            prop_assert!(sum == expected || at_bound, "{:?} {:?} {:?}", payer, sum, expected);
        }
    }
    Ok(())
}

/// Lists the budgets of keys and groups in any order, each with its owner and its earlier state.
fn budgets<'a>(before: &'a World, after: &'a World) -> impl Iterator<Item = (Who, &'a Budget, &'a Budget)> {
    let keys = after.keys.iter().map(|((account, id), key)| {
        (Who::Key(*account, *id), &before.keys[&(*account, *id)].budget, &key.budget)
    });
    let groups = after.groups.iter().map(|((account, id), group)| {
        (Who::Group(*account, *id), &before.groups[&(*account, *id)].budget, &group.budget)
    });
    keys.chain(groups)
}

/// Owner of a budget.
#[derive(Clone, Copy, Debug)]
enum Who {
    Key(AccountId, KeyId),
    Group(AccountId, GroupId),
}

impl Who {
    const fn account(self) -> AccountId {
        match self {
            Self::Key(account, _) | Self::Group(account, _) => account,
        }
    }

    fn pays(self, payer: &Payer) -> bool {
        match self {
            Self::Key(_, key) => payer.key == key,
            Self::Group(_, group) => payer.is_in(group),
        }
    }

    /// Returns the budget's position in the chain of a payer.
    fn level(self, payer: &Payer) -> Option<usize> {
        match self {
            Self::Key(_, key) => (payer.key == key).then_some(0),
            Self::Group(_, group) => {
                payer.groups.iter().position(|id| *id == Some(group)).map(|place| place + 1)
            }
        }
    }
}

fn unchanged_if_nothing_happened(
    before: &World,
    after: &World,
    outcome: &Result<Outcome, Refused>,
) -> Result<(), TestCaseError> {
    if matches!(outcome, Err(_) | Ok(Outcome::Gone | Outcome::NotDue | Outcome::Allowed { .. })) {
        // A hold that finds a limit used up writes an event.
        prop_assert_eq!(&World { events: after.events.clone(), ..before.clone() }, after);
    }
    Ok(())
}

/// Checks that no limit, window or credit is ever exceeded. If a bound was lowered below the amount in use, was set
/// while more was held, or lost its raise, it is not exceeded any further. What a window has used is judged as
/// recorded, without regard to clocks.
fn nothing_overspent(before: &World, after: &World, now: Timestamp) -> Result<(), TestCaseError> {
    let in_force = |amount: NanoUsd, raised: Option<Raise>| match raised {
        Some(Raise { amount, until }) if now < until => amount,
        Some(_) | None => amount,
    };
    for (who, earlier, budget) in budgets(before, after) {
        if let Some(limit) = budget.limit {
            let limit = in_force(limit, budget.bounds.as_ref().and_then(|bounds| bounds.limit_raised));
            let spoken_for = |budget: &Budget| plus(budget.used, budget.held);
            prop_assert!(spoken_for(budget) <= limit.max(spoken_for(earlier)), "{:?}", who);
        }
        for (earlier, window) in windows(earlier).zip(windows(budget)) {
            let spoken_for = |window: Window, held| plus(window.used, held);
            let most =
                in_force(window.amount, window.raised).max(spoken_for(earlier, budgets_held(before, who)));
            prop_assert!(spoken_for(window, budget.held) <= most, "{:?} {:?}", who, window);
        }
    }
    for (id, account) in &after.accounts {
        prop_assert!(account.held <= account.credit && account.credit <= NanoUsd::MAX);
        let earlier = before.accounts[id];
        let holds_more = account.held > earlier.held;
        prop_assert!(earlier.standing.is_none() || !holds_more, "a suspended account holds more");
    }
    Ok(())
}

fn windows(budget: &Budget) -> impl Iterator<Item = Window> {
    budget.bounds.iter().flat_map(|bounds| bounds.windows.iter().copied())
}

fn budgets_held(world: &World, who: Who) -> NanoUsd {
    match who {
        Who::Key(account, id) => world.keys[&(account, id)].budget.held,
        Who::Group(account, id) => world.groups[&(account, id)].budget.held,
    }
}

/// Checks that a bill adds to each current window, and that a returned amount is subtracted from the windows that
/// counted the bill.
fn windows_count_what_was_billed_in_them(
    before: &World,
    after: &World,
    now: Timestamp,
) -> Result<(), TestCaseError> {
    let new = |account: &AccountId| {
        let earlier = before.trails.get(account).map_or(0, |trail| trail.journal.len());
        after.trails[account].journal.get(earlier)
    };
    for (who, earlier, budget) in budgets(before, after) {
        let billed = after.trails.get(&who.account()).and_then(|_| new(&who.account()));
        let billed = billed.filter(|(_, entry)| who.pays(&entry.settlement.payer));
        for (earlier, window) in windows(earlier).zip(windows(budget)) {
            let Some((generation, entry)) = billed else {
                prop_assert!(window == earlier || window == earlier.at(now), "{:?} {:?}", who, window);
                continue;
            };
            // After a clock has stepped back, a bill's time is at least the previous bill's.
            let at = entry.settlement.at.max(now);
            let earlier = earlier.at(at);
            let record = before.records.get(&(who.account(), RecordId::Generation(*generation)));
            let counts = match record {
                Some(Record::Closed(expired)) if entry.delta < NanoUsd::ZERO => expired.at >= earlier.start,
                _ => true,
            };
            let expected = if counts { plus(earlier.used, entry.delta) } else { earlier.used };
            prop_assert_eq!(window.at(at), Window { used: expected, ..earlier }, "{:?}", who);
        }
    }
    Ok(())
}

/// Checks that every budget with bounds has as many requests in flight as open holds that it counts.
fn requests_in_flight_are_open_holds(world: &World) -> Result<(), TestCaseError> {
    for (who, _, budget) in budgets(world, world) {
        let counts = |((account, _), record): (&(AccountId, RecordId), &Record)| {
            let Record::Open(hold) = record else { return false };
            *account == who.account()
                && who.level(&hold.payer).is_some_and(|level| hold.counted.levels[level])
        };
        let in_flight = world.records.iter().filter(|(id, record)| counts((id, record))).count() as u64;
        prop_assert_eq!(budget.bounds.as_ref().map_or(0, |bounds| bounds.in_flight), in_flight, "{:?}", who);
        prop_assert!(budget.bounds.as_deref() != Some(&Bounds::default()));
        for rate in budget.bounds.iter().filter_map(|bounds| bounds.tokens_per_minute) {
            prop_assert!((0..=MOST_TAKEN).contains(&rate.taken));
        }
    }
    Ok(())
}

/// Checks that `held` is the sum of the holds, `used` the sum of the charges, credit what remains of the deposits, the
/// limit of a wallet what was paid into it, and that the journal's running balances end at `used`.
fn every_sum_adds_up(world: &World) -> Result<(), TestCaseError> {
    let mut balances: HashMap<(AccountId, KeyId), NanoUsd> = HashMap::new();
    for (account, trail) in &world.trails {
        for (_, entry) in &trail.journal {
            let balance = balances.entry((*account, entry.settlement.payer.key)).or_default();
            *balance = plus(*balance, entry.delta);
            prop_assert_eq!(*balance, entry.used_after);
        }
    }
    for (id, key) in &world.keys {
        prop_assert_eq!(key.budget.used, balances.get(id).copied().unwrap_or_default());
    }
    let mut totals: HashMap<AccountId, (NanoUsd, NanoUsd)> = HashMap::new();
    for (who, _, budget) in budgets(world, world) {
        let booked = world.booked(who.account(), |payer| who.pays(payer));
        prop_assert_eq!((budget.held, budget.used), booked, "{:?}", who);
        if let Who::Key(account, _) = who {
            let total = totals.entry(account).or_default();
            *total = (plus(total.0, booked.0), plus(total.1, booked.1));
        }
    }
    for ((account, id), group) in &world.groups {
        let paid = world.paid(*account, *id);
        prop_assert_eq!(group.wallet.map_or(NanoUsd::ZERO, |wallet| wallet.paid), paid);
        if let Some(wallet) = group.wallet {
            prop_assert_eq!(group.budget.limit, Some(plus(wallet.opening, wallet.paid)));
        }
    }
    for (id, account) in &world.accounts {
        let (held, used) = totals[id];
        prop_assert_eq!(account.held, held);
        prop_assert_eq!(plus(account.credit, used), world.deposited(*id));
    }
    Ok(())
}

/// Checks that a charge is at most the cost, and that it is final once the generation was captured.
fn billed_is_billed(before: &World, after: &World) -> Result<(), TestCaseError> {
    for (id, record) in &after.records {
        let Record::Closed(now) = record else { continue };
        prop_assert!(now.charged <= now.cost);
        if let Some(Record::Closed(earlier)) = before.records.get(id) {
            prop_assert!(earlier.ending == Ending::Expired || earlier == now);
        }
    }
    Ok(())
}

fn again_is_the_same(
    world: &World,
    account: AccountId,
    command: &Command,
    now: Timestamp,
    outcome: Result<Outcome, Refused>,
) -> Result<(), TestCaseError> {
    let mut again = world.clone();
    let heard = again.apply(account, command, now);
    prop_assert_eq!(&again, world);
    let expected = match outcome {
        Ok(Outcome::Expired(_)) => Ok(Outcome::Gone),
        Ok(Outcome::Deposited { deposited, .. }) => Ok(Outcome::Deposited { deposited, is_new: false }),
        other => other,
    };
    prop_assert_eq!(heard, expected);
    Ok(())
}
