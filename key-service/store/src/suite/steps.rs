//! Steps for cases, and for tests of callers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "panics are fine as test failures")]

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use shared::{
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use crate::store::{DueHold, Ledger as _, NewAccount, Outcomes, Store};
use domain::{
    digest::Digest,
    event::{Act, Actor},
    group::{Group, NewGroup},
    key::{ApiKey, NewKey},
    ledger::{
        self, Command, NewHold, Outcome, PaidTo, Progress, Refused,
        histories::{START, credit_after, deposit, new_hold},
    },
};

/// Returns the time that is this many seconds after the start.
pub fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

/// Returns an act at this time. Every act has a different id.
pub fn act(at: Timestamp) -> Act {
    static ACTS: AtomicU64 = AtomicU64::new(0);
    let mut chance = [0; 10];
    chance[..8].copy_from_slice(&ACTS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    Act { actor: Actor::System, at, chance }
}

pub fn nanos(n: i64) -> NanoUsd {
    NanoUsd::from_nanos(n)
}

pub(super) fn digest(of: &str) -> Digest {
    Digest::of(of.as_bytes())
}

/// Creates the account with this number.
pub async fn open_account(store: &Store, n: u8) -> AccountId {
    let id = ledger::histories::account(n);
    let new = NewAccount { id, name: format!("Customer {n}"), created_at: after(n.into()) };
    assert!(store.create_account(new).await.unwrap());
    id
}

/// Creates the account with this number, and gives it credit.
pub async fn open_account_with(store: &Store, n: u8, credit: i64) -> AccountId {
    let account = open_account(store, n).await;
    let command = Command::Deposit {
        id: deposit(0),
        amount: nanos(credit),
        note: String::new(),
        payment_id: None,
        to: PaidTo::Account,
        actor: Actor::System,
    };
    let outcomes = store.execute(account, vec![command], START).await.unwrap();
    assert_eq!(outcomes.iter().map(credit_after).collect::<Vec<_>>(), [Some(nanos(credit))]);
    account
}

/// Returns what is needed to create key number `n`.
pub fn new_key(account: AccountId, n: u8) -> NewKey {
    let blank = ApiKey::new(ledger::histories::key(n), format!("fg_api_{n}…"), after(n.into()));
    let key = ApiKey { label: format!("Key {n}"), ..blank };
    NewKey { account, key, digest: digest(&format!("{account} {n}")), most: u64::MAX >> 11 }
}

/// Returns the group with this number, to be created.
pub fn new_group(account: AccountId, n: u8) -> NewGroup {
    let blank = Group::new(ledger::histories::group(n), after(n.into()));
    let group = Group { name: format!("Group {n}"), ..blank };
    NewGroup { account, group, most: 100 }
}

/// Creates a key that may spend this much.
pub async fn make_key(store: &Store, account: AccountId, n: u8, limit: Option<i64>) -> KeyId {
    let mut new = new_key(account, n);
    new.key.spend.budget.limit = limit.map(nanos);
    store.create_key(new, None, &act(START)).await.unwrap();
    ledger::histories::key(n)
}

/// Returns a hold of exactly this amount.
pub fn hold(key: KeyId, generation: GenerationId, amount: i64, lease_ticks: u64) -> Command {
    Command::Hold(NewHold { lease_ticks, ..new_hold(key, generation, nanos(amount)) })
}

/// Returns the capture of a generation that cost this much.
pub fn capture(key: KeyId, generation: GenerationId, cost: i64) -> Command {
    let usage = Usage::of(1, 0, cost.unsigned_abs());
    let (model, total) =
        ("Model Flash".into(), Progress { usage, cost: nanos(cost), upstream_cost: None, course: None });
    Command::Capture { key, generation, model, total, chargeable: None, estimated: false }
}

/// Advances lease time by this many ticks.
pub async fn tick(store: &Store, account: AccountId, ticks: u64) {
    let mut seen = None;
    for _ in 0..=ticks {
        let Ok(Outcome::Ticked(tick)) = execute_one(store, account, Command::Tick { seen }).await else {
            panic!("the account has no lease time")
        };
        seen = Some(tick);
    }
}

/// Lists all due holds of the account, ordered by generation.
pub async fn due_holds(store: &Store, account: AccountId) -> Vec<DueHold> {
    let (mut due, mut after) = (Vec::new(), None);
    loop {
        let page = store.due_holds(account, after).await.unwrap();
        due.extend(page.holds);
        after = page.next;
        if after.is_none() {
            // A store may list a hold twice if the hold has changed in the meantime.
            due.sort_by_key(|hold: &DueHold| hold.generation);
            due.dedup();
            return due;
        }
    }
}

/// Executes one command.
pub(super) async fn execute_one(
    store: &Store,
    account: AccountId,
    command: Command,
) -> Result<Outcome, Refused> {
    let mut outcomes: Outcomes = store.execute(account, vec![command], START).await.unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Reads a key's money and limits.
pub async fn spend(store: &Store, account: AccountId, key: KeyId) -> ledger::Key {
    store.key(account, key).await.unwrap().unwrap().spend
}
