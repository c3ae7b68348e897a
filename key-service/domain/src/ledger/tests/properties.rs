//! Random histories: the invariants of the ledger hold at every step.

use std::collections::HashMap;

use proptest::prelude::*;
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::ledger::{
    Command, Ending, Key, Outcome, Record, Refused,
    funds::plus,
    histories::{START, Step, World, history},
};

proptest! {
    #[test]
    fn the_books_balance_after_every_command(history in history()) {
        let (mut world, mut now) = (World::new(), START);
        for step in history {
            match step {
                Step::Wait(duration) => now = now.plus(duration),
                Step::Update(account, key, patch) => world.update(account, key, &patch),
                Step::Revoke(account, key) => world.revoke(account, key, now),
                Step::Execute(account, commands) => for command in commands {
                    let before = world.clone();
                    let outcome = world.apply(account, &command, now);
                    unchanged_if_nothing_happened(&before, &world, &outcome)?;
                    nothing_overspent(&before, &world)?;
                    every_sum_adds_up(&world)?;
                    billed_is_billed(&before, &world)?;
                    again_is_the_same(&world, account, &command, now, outcome)?;
                },
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
        prop_assert_eq!(before, after);
    }
    Ok(())
}

/// Neither limit nor credit is ever exceeded. A limit lowered below the amount in use is not exceeded any further.
fn nothing_overspent(before: &World, after: &World) -> Result<(), TestCaseError> {
    for (id, key) in &after.keys {
        let spoken_for = |key: &Key| plus(key.budget.used, key.budget.held);
        if let Some(limit) = key.budget.limit {
            prop_assert!(spoken_for(key) <= limit.max(spoken_for(&before.keys[id])));
        }
    }
    for account in after.accounts.values() {
        prop_assert!(account.held <= account.credit && account.credit <= NanoUsd::MAX);
    }
    Ok(())
}

/// Held is the sum of the holds, used the sum of the charges, and credit the rest of the deposits. The journal's
/// running balances end at the used amount.
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
    for ((account, id), key) in &world.keys {
        let booked = world.booked(*account, *id);
        prop_assert_eq!((key.budget.held, key.budget.used), booked);
        let total = totals.entry(*account).or_default();
        *total = (plus(total.0, booked.0), plus(total.1, booked.1));
    }
    for (id, account) in &world.accounts {
        let (held, used) = totals[id];
        prop_assert_eq!(account.held, held);
        prop_assert_eq!(plus(account.credit, used), world.deposited(*id));
    }
    Ok(())
}

/// A charge is at most the cost, and final once the generation was captured.
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
        other => other,
    };
    prop_assert_eq!(heard, expected);
    Ok(())
}
