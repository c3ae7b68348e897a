//! Tests audits of sound and damaged books.

mod damages;
mod each_field;
mod wallets;

use std::sync::Arc;

use domain::{
    audit::{Audit, Figure, Quantity, Stored, Wrong},
    ledger::{
        Bounds, Budget, Command, Key, NewHold, Progress, Window,
        histories::{START, account, generation, group, key, new_hold},
    },
    settings::AccountLabels,
};
use key_service_audit::AUDIT_ATTEMPTS;
use key_service_ledger::{names, stored::AccountClaim, view::FORM};
use records::{Commit, Record, Records, Revision, Write, maps::Maps};
use shared::{
    calendar::Per,
    generation::{ModelApi, Origin},
    ids::KeyId,
    money::NanoUsd,
    time::Timestamp,
    tokens::{Usage, UsageDetails},
};

use crate::{
    store::{EVENTS_KEPT, EventBounds, Ledger, NewAccount, Store, StoreRetention, layout},
    suite::{FrozenClock, act, nanos, new_group, new_key, open_account_with},
};

const MODEL: &str = "Model Flash";
const USER: &str = "ann";
/// A time that is later than the start by more than clocks may differ.
const LATER: Timestamp = Timestamp::from_millis(START.millis() + 20 * 60 * 1000);

fn store(records: &Arc<Maps>, journal_entries: Option<u64>) -> Store {
    let kept = StoreRetention { journal_entries, ..StoreRetention::all(EventBounds::with_life(EVENTS_KEPT)) };
    Store::new(Arc::clone(records) as Arc<dyn Records>, Arc::new(FrozenClock), kept)
}

/// Creates an account with a credit of 10,000, twenty keys in a group that has a parent, and limits for all keys and
/// both groups.
async fn open(store: &Store) {
    let mine = open_account_with(store, 1, 10_000).await;
    let day = Window { per: Per::Day, amount: nanos(9_000), raised: None, start: START, used: NanoUsd::ZERO };
    let bounds = || Bounds { windows: vec![day], max_in_flight: Some(100), ..Bounds::default() };
    let budget = || Budget { bounds: Some(Box::new(bounds())), ..Budget::default() };
    for n in [0, 1] {
        let mut new = new_group(mine, n);
        new.group.spend.parent = (n == 1).then_some(group(0));
        new.group.spend.budget = budget();
        store.create_group(new, None, &act(START)).await.unwrap();
    }
    for n in 0..20 {
        make_key(store, n, budget()).await;
    }
}

/// Creates a key in the group, unless it exists.
async fn make_key(store: &Store, n: u8, budget: Budget) {
    let mut new = new_key(account(1), n);
    new.key.spend = Key { budget, group: Some(group(1)), ..Key::default() };
    store.create_key(new, None, &act(START)).await.unwrap();
}

async fn execute(store: &Store, commands: Vec<Command>, now: Timestamp) {
    for outcome in store.execute(account(1), commands, now).await.unwrap() {
        outcome.unwrap();
    }
}

fn hold(key: KeyId, n: u8, amount: i64, lease_ticks: u64) -> Command {
    let origin = Origin { api: ModelApi::Chat, stream: true, user: Some(USER.into()), request: None };
    let new = new_hold(key, generation(n), nanos(amount));
    Command::Hold(NewHold { model: MODEL.into(), lease_ticks, origin: Some(Arc::new(origin)), ..new })
}

fn capture(key: KeyId, n: u8, cost: i64) -> Command {
    let usage =
        Usage { details: UsageDetails { images: 1, ..UsageDetails::default() }, ..Usage::of(3, 1, 2) };
    let total = Progress { usage, cost: nanos(cost), upstream_cost: Some(nanos(4)), course: None };
    let (generation, model) = (generation(n), MODEL.into());
    Command::Capture { key, generation, model, total, chargeable: None, estimated: false }
}

/// Writes eleven bills, a bill of an expired hold with its correction, and an open hold. The last bill is long after
/// the limits were set.
async fn spend(store: &Store) {
    for n in 0..10 {
        execute(store, vec![hold(key(n), n, 100, 1), capture(key(n), n, 10)], START).await;
    }
    execute(store, vec![hold(key(3), 20, 100, 1), hold(key(3), 30, 50, 9)], START).await;
    for seen in [None, Some(0), Some(1)] {
        execute(store, vec![Command::Tick { seen }], START).await;
    }
    let expire = Command::Expire { key: key(3), generation: generation(20) };
    execute(store, vec![expire, capture(key(3), 20, 7)], START).await;
    execute(store, vec![hold(key(5), 40, 100, 9), capture(key(5), 40, 10)], LATER).await;
}

async fn audit(store: &Store) -> Audit {
    store.audit(account(1)).await.unwrap().unwrap()
}

#[tokio::test]
async fn books_that_add_up_are_sound_also_without_the_beginning_of_the_journal() {
    for kept in [None, Some(5)] {
        let records = Arc::new(Maps::default());
        let store = store(&records, kept);
        assert_eq!(store.audit(account(1)).await, Ok(None));
        open(&store).await;
        spend(&store).await;
        let entries = store.journal(account(1), 0, 99).await.unwrap().entries.len() as u64;
        assert_eq!(entries, kept.unwrap_or(13));
        assert_eq!(audit(&store).await, Audit { entries, keys: 20, groups: 2, wrong: Vec::new() });
    }
}

#[tokio::test]
async fn a_journal_that_lost_its_beginning_is_found_and_proves_the_rest() {
    let records = Arc::new(Maps::default());
    let store = store(&records, None);
    open(&store).await;
    spend(&store).await;
    let lost = vec![Write::Trim { log: names::JOURNAL, first: 12 }];
    records.commit(&names::space(account(1)), Commit { guards: Vec::new(), writes: lost }).await.unwrap();
    let (recorded, proven) = (Quantity::Count(12), Quantity::Count(1));
    let wrong = vec![Wrong { figure: Figure::FirstEntry, recorded, proven }];
    assert_eq!(audit(&store).await, Audit { entries: 2, keys: 20, groups: 2, wrong });
    // In a copy of a store that drops entries, it is recorded where the journal begins.
    store.note_first_entries().await.unwrap();
    assert_eq!(audit(&store).await.wrong, []);
}

#[tokio::test]
async fn an_external_id_that_leads_nowhere_or_to_another_account_is_named() {
    let records = Arc::new(Maps::default());
    let store = store(&records, None);
    let labels = AccountLabels { external_id: Some("cus_1".into()), ..AccountLabels::default() };
    let new = NewAccount { id: account(1), name: "Acme".into(), created_at: START };
    store.open_account(new, &labels, None).await.unwrap();
    assert_eq!(audit(&store).await.wrong, []);
    let (space, name) = layout::account_external_id("cus_1");
    let other = AccountClaim { account: account(2), created_at: START, name: "Acme".into() };
    let stolen = Write::Put(name.clone().into(), Record::of(Revision([7; 8]), FORM, &other));
    for damage in [stolen, Write::Remove(name.into())] {
        records.commit(&space, Commit { guards: Vec::new(), writes: vec![damage] }).await.unwrap();
        let (recorded, proven) = (Quantity::Count(0), Quantity::Count(1));
        let wrong = Wrong { figure: Figure::Stored(Stored::ExternalId), recorded, proven };
        assert_eq!(audit(&store).await.wrong, [wrong]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn books_are_sound_while_others_spend_and_make_keys() {
    let records = Arc::new(Maps::default());
    let store = Arc::new(store(&records, Some(40)));
    open(&store).await;
    // Each capture can make an attempt to read the journal fail. With this many captures, at least the last attempt
    // must succeed.
    let few = u8::try_from(AUDIT_ATTEMPTS).unwrap() - 1;
    for round in 0..20 {
        let store = Arc::clone(&store);
        let spender = {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in round * few..(round + 1) * few {
                    let late = key(20 + n % 50);
                    make_key(&store, 20 + n % 50, Budget::default()).await;
                    execute(&store, vec![hold(late, n, 10, 9)], START).await;
                    tokio::task::yield_now().await;
                    execute(&store, vec![capture(late, n, 12)], START).await;
                }
            })
        };
        assert_eq!(audit(&store).await.wrong, []);
        spender.await.unwrap();
    }
    assert_eq!(audit(&store).await.wrong, []);
}
