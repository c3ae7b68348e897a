//! Spending: the ledger's answers, whatever the batches and however many ask at once.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use proptest::test_runner::{Config, TestRunner};
use shared::{
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use super::{
    Subject, after, capture, execute_one, hold, make_key, nanos, new_key, open_account, open_account_with,
    spend,
};
use crate::{
    domain::{
        audit::Audit,
        key::KeyPatch,
        ledger::{
            Command, Outcome, Progress, Record, RecordId, Refused,
            script::{ACCOUNTS, GENERATIONS, KEYS, START, Step, World, account, generation, history, key},
        },
        usage::Day,
    },
    store::{DueHold, Store, UsageLine},
};

/// Random histories per store; each is a few hundred commands.
const HISTORIES: u32 = 48;

/// Entries read at once: so few that there are several pages.
const PAGE: usize = 3;

/// Callers that ask at once.
const CALLERS: u8 = 48;

pub(super) async fn an_unknown_account_is_refused_everything(subject: &mut impl Subject) {
    let store = subject.store();
    let deposit = Command::Deposit { id: super::deposit(1), amount: nanos(5) };
    let commands =
        vec![deposit, hold(key(1), generation(1), 5, after(30)), capture(key(1), generation(1), 5)];
    let outcomes = store.execute(account(1), commands, START).await.unwrap();
    assert_eq!(outcomes, vec![Err(Refused::UnknownKey); 3]);
    assert_eq!(store.accounts().await.unwrap(), []);
    assert_eq!(store.due_holds(after(99), 9).await.unwrap(), []);
}

pub(super) async fn no_commands_have_no_outcomes(subject: &mut impl Subject) {
    let account = open_account(&**subject.store(), 1).await;
    assert_eq!(subject.store().execute(account, Vec::new(), START).await.unwrap(), []);
}

pub(super) async fn a_generation_held_again_for_another_key_is_due_once(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(&**store, 1, 100).await;
    let (first, second) =
        (make_key(&**store, account, 1, None).await, make_key(&**store, account, 2, None).await);
    let generation = generation(1);
    execute_one(&**store, account, hold(first, generation, 5, after(30))).await.unwrap();
    let release = Command::Release { key: first, generation };
    let at_once = vec![release, hold(second, generation, 5, after(40))];
    store.execute(account, at_once, START).await.unwrap();
    let due = DueHold { account, key: second, generation };
    assert_eq!(store.due_holds(after(99), 9).await.unwrap(), [due]);
}

pub(super) async fn holds_are_due_when_their_lease_is_over_and_the_oldest_come_first(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    let mut expected = Vec::new();
    for (n, lease) in [(1, 30), (2, 10), (3, 20)] {
        let account = open_account_with(&**store, n, 100).await;
        let key = make_key(&**store, account, n, None).await;
        let held = execute_one(&**store, account, hold(key, generation(n), 5, after(lease))).await;
        assert_eq!(held, Ok(Outcome::Held(nanos(5))));
        expected.push((lease, DueHold { account, key, generation: generation(n) }));
    }
    expected.sort_by_key(|(lease, _)| *lease);
    let expected: Vec<_> = expected.into_iter().map(|(_, hold)| hold).collect();
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.due_holds(after(9), 9).await.unwrap(), []);
    assert_eq!(store.due_holds(after(20), 9).await.unwrap(), expected[..2]);
    assert_eq!(store.due_holds(after(99), 9).await.unwrap(), expected);
    assert_eq!(store.due_holds(after(99), 1).await.unwrap(), expected[..1]);

    // What is extended is due later, what is resolved never.
    let DueHold { account, key, generation } = expected[0];
    let (progress, lease_until) = (Progress::default(), after(40));
    let extend = Command::Extend { key, generation, most: nanos(5), progress, lease_until };
    execute_one(&**store, account, extend).await.unwrap();
    let DueHold { account, key, generation } = expected[1];
    execute_one(&**store, account, capture(key, generation, 5)).await.unwrap();
    assert_eq!(store.due_holds(after(99), 9).await.unwrap(), [expected[2], expected[0]]);
}

pub(super) async fn the_largest_numbers_come_back(subject: &mut impl Subject) {
    let store = subject.store();
    let most = NanoUsd::MAX;
    let account = open_account_with(&**store, 1, most.nanos()).await;
    let key = make_key(&**store, account, 1, Some(most.nanos())).await;
    let late = Timestamp::from_millis(i64::MAX);
    let held = execute_one(&**store, account, hold(key, generation(1), most.nanos(), late)).await;
    assert_eq!(held, Ok(Outcome::Held(most)));
    assert_eq!(spend(&**store, account, key).await.held, most);
    let usage = Usage { prompt: u64::MAX, cached: u64::MAX - 1, completion: 1 << 63 };
    let total = Progress { usage, cost: most };
    let capture = Command::Capture { key, generation: generation(1), total, estimated: true };
    let captured = execute_one(&**store, account, capture.clone()).await;
    let Ok(Outcome::Captured(settlement)) = &captured else { panic!("{captured:?}") };
    assert_eq!((settlement.usage, settlement.charged), (usage, most));
    subject.interrupt().await;
    assert_eq!(execute_one(&**subject.store(), account, capture).await, captured);
    assert_eq!(spend(&**subject.store(), account, key).await.used, most);
}

pub(super) async fn holds_at_once_never_pass_the_limit(subject: &mut impl Subject) {
    let account = open_account_with(&**subject.store(), 1, 1_000_000).await;
    let key = make_key(&**subject.store(), account, 1, Some(1_000)).await;
    spend_it_all(subject.store(), account, &[key], Refused::LimitReached).await;
    let spent = spend(&**subject.store(), account, key).await;
    assert_eq!((spent.used, spent.held), (nanos(1_000), nanos(0)));
}

pub(super) async fn holds_at_once_never_pass_the_credit(subject: &mut impl Subject) {
    let account = open_account_with(&**subject.store(), 1, 1_000).await;
    let mut keys = Vec::new();
    for n in 0..4 {
        keys.push(make_key(&**subject.store(), account, n, None).await);
    }
    spend_it_all(subject.store(), account, &keys, Refused::CreditEmpty).await;
    let summary = subject.store().accounts().await.unwrap().remove(0);
    assert_eq!((summary.credit, summary.held), (nanos(0), nanos(0)));
}

/// Many callers hold and capture until they hear that it is gone; meanwhile no sum is ever too large.
async fn spend_it_all(store: &Arc<dyn Store>, account: AccountId, keys: &[KeyId], end: Refused) {
    let callers = (0..CALLERS).map(|n| {
        let (store, key) = (Arc::clone(store), keys[usize::from(n) % keys.len()]);
        tokio::spawn(async move {
            for turn in 0.. {
                let generation = GenerationId::new(after(turn), [n; 10]);
                match execute_one(&*store, account, hold(key, generation, 10, after(99_999))).await {
                    Ok(Outcome::Held(amount)) => {
                        assert_eq!(amount, nanos(10));
                        execute_one(&*store, account, capture(key, generation, 10)).await.unwrap();
                    }
                    Err(Refused::Reserved) => tokio::task::yield_now().await,
                    other => return assert_eq!(other, Err(end)),
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    while !callers.iter().all(tokio::task::JoinHandle::is_finished) {
        let money = store.accounts().await.unwrap().remove(0);
        assert!(money.held <= money.credit, "{money:?}");
        for key in keys {
            let key = spend(&**store, account, *key).await;
            let spoken_for = key.used.checked_add(key.held).unwrap();
            assert!(key.limit.is_none_or(|limit| spoken_for <= limit), "{key:?}");
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
}

pub(super) async fn a_capture_sent_by_many_at_once_is_billed_once(subject: &mut impl Subject) {
    let account = open_account_with(&**subject.store(), 1, 1_000).await;
    let key = make_key(&**subject.store(), account, 1, None).await;
    execute_one(&**subject.store(), account, hold(key, generation(1), 100, after(30))).await.unwrap();
    let callers = (0..CALLERS).map(|n| {
        let store = Arc::clone(subject.store());
        // No two tell the same.
        tokio::spawn(
            async move { execute_one(&*store, account, capture(key, generation(1), n.into())).await },
        )
    });
    let mut heard = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        heard.push(caller.await.unwrap().unwrap());
    }
    assert!(heard.iter().all(|outcome| *outcome == heard[0]));
    let Outcome::Captured(settlement) = &heard[0] else { panic!("{heard:?}") };
    assert_eq!(spend(&**subject.store(), account, key).await.used, settlement.charged);
}

pub(super) async fn changes_at_once_lose_no_money(subject: &mut impl Subject) {
    let account = open_account_with(&**subject.store(), 1, 1_000_000).await;
    let key = make_key(&**subject.store(), account, 1, None).await;
    let owner = Arc::clone(subject.store());
    let owner = tokio::spawn(async move {
        for n in 0..100 {
            let patch =
                KeyPatch { label: Some(n.to_string()), limit: Some(Some(nanos(n))), expires_at: None };
            owner.update_key(account, key, patch).await.unwrap().unwrap().unwrap();
        }
        owner.update_key(account, key, KeyPatch { limit: Some(None), ..KeyPatch::default() }).await.unwrap();
    });
    let mut charged = 0;
    for n in 0..100 {
        let generation = GenerationId::new(after(n), [1; 10]);
        let commands = vec![hold(key, generation, 7, after(9_999)), capture(key, generation, 7)];
        let outcomes = subject.store().execute(account, commands, START).await.unwrap();
        if let [Ok(_), Ok(Outcome::Captured(settlement))] = &outcomes[..] {
            charged += settlement.charged.nanos();
        }
    }
    owner.await.unwrap();
    let after = subject.store().key(account, key).await.unwrap().unwrap();
    assert_eq!((after.label.as_str(), after.spend.limit), ("99", None));
    assert_eq!((after.spend.used, after.spend.held), (nanos(charged), nanos(0)));
}

pub(super) async fn it_answers_a_ping(subject: &mut impl Subject) {
    subject.store().ping().await.unwrap();
}

/// The same history by the ledger alone and by the store: equal answers, and equal books in the end.
pub(super) fn random_histories_end_as_the_ledger_says<S: Subject>() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: HISTORIES, failure_persistence: None, ..Config::default() };
    // Subjects that share a server keep it running from one history to the next.
    let previous = RefCell::new(None);
    let outcome = TestRunner::new(config).run(&history(), |history| {
        let mut subject = runtime.block_on(S::new());
        runtime.block_on(live(&mut subject, history));
        previous.replace(Some(subject));
        Ok(())
    });
    outcome.unwrap();
}

/// Lives a history, and compares.
pub(super) async fn live(subject: &mut impl Subject, history: Vec<Step>) {
    let (mut world, mut now) = (World::new(), START);
    for a in 0..ACCOUNTS {
        open_account(&**subject.store(), a).await;
        for k in 0..KEYS {
            let mut new = new_key(account(a), k);
            new.key.spend = world.keys[&(account(a), key(k))];
            subject.store().create_key(new, None).await.unwrap();
        }
    }
    let middle = history.len() / 2;
    for (n, step) in history.into_iter().enumerate() {
        if n == middle {
            subject.interrupt().await;
        }
        let store = subject.store();
        match step {
            Step::Wait(duration) => now = now.plus(duration),
            Step::Update(account, key, patch) => {
                world.update(account, key, &patch);
                store.update_key(account, key, patch).await.unwrap();
            }
            Step::Revoke(account, key) => {
                world.revoke(account, key, now);
                store.revoke_key(account, key, now).await.unwrap();
            }
            Step::Execute(account, commands) => {
                let expected: Vec<_> = commands.iter().map(|c| world.apply(account, c, now)).collect();
                assert_eq!(store.execute(account, commands, now).await.unwrap(), expected);
            }
        }
    }
    the_books_are_equal(&**subject.store(), &world).await;
    the_trails_are_equal(&**subject.store(), &world).await;
    the_books_balance(&**subject.store(), world, now).await;
}

/// All that can be read: keys, accounts, open holds.
async fn the_books_are_equal(store: &dyn Store, world: &World) {
    for ((account, key), expected) in &world.keys {
        assert_eq!(spend(store, *account, *key).await, *expected);
    }
    for summary in store.accounts().await.unwrap() {
        let expected = world.accounts[&summary.id];
        assert_eq!((summary.credit, summary.held), (expected.credit, expected.held));
    }
    let open = world.records.iter().filter_map(|((account, id), record)| match (id, record) {
        (RecordId::Generation(generation), Record::Open(hold)) => {
            Some((*account, hold.key, *generation, hold.lease_until))
        }
        _ => None,
    });
    let open: Vec<_> = open.collect();
    let due = store.due_holds(after(1_000_000), usize::MAX).await.unwrap();
    let lease = |hold: &DueHold| {
        let found =
            open.iter().find(|(a, k, g, _)| (*a, *k, *g) == (hold.account, hold.key, hold.generation));
        found.map(|(.., lease_until)| *lease_until)
    };
    assert!(due.iter().all(|hold| lease(hold).is_some()) && due.is_sorted_by_key(lease));
    let distinct: HashSet<_> = due.iter().map(|hold| (hold.account, hold.generation)).collect();
    assert_eq!((due.len(), distinct.len()), (open.len(), open.len()));
}

/// The journal, what was counted, and whether an audit is content.
async fn the_trails_are_equal(store: &dyn Store, world: &World) {
    for account in world.accounts.keys() {
        let expected = world.trails.get(account).cloned().unwrap_or_default();
        let (mut entries, mut after) = (Vec::new(), 0);
        loop {
            let page = store.journal(*account, after, PAGE).await.unwrap();
            assert_eq!(page.gone_until, 0);
            after = page.entries.last().map_or(after, |entry| entry.number);
            let was_last = page.entries.len() < PAGE;
            entries.extend(page.entries);
            if was_last {
                break;
            }
        }
        let numbered: BTreeMap<_, _> = entries.iter().map(|entry| (entry.number, entry.generation)).collect();
        assert_eq!((numbered, entries.len()), (expected.journal.clone(), expected.journal.len()));
        for entry in &entries {
            assert_eq!(Some(&entry.settlement), world.settlement(*account, entry.generation));
        }
        let lines = expected.counted.into_iter().map(|((day, key, model), counts)| UsageLine {
            day,
            key,
            model,
            counts,
        });
        let days = Day::of(START)..=Day::of(after_a_day(START));
        assert_eq!(store.usage(*account, days, None).await.unwrap(), lines.collect::<Vec<_>>());
        let audit = store.audit(*account).await.unwrap().unwrap();
        let keys = world.keys.keys().filter(|(of, _)| of == account).count() as u64;
        assert_eq!(audit, Audit { entries: entries.len() as u64, keys, wrong: Vec::new() });
    }
}

fn after_a_day(at: Timestamp) -> Timestamp {
    at.plus(Duration::from_hours(24))
}

/// A capture sent again tells what was billed, so one of everything audits the journal: its charges are what keys used.
async fn the_books_balance(store: &dyn Store, mut world: World, now: Timestamp) {
    let now = now.plus(Duration::from_secs(1));
    for (account, key) in world.clone().keys.into_keys() {
        let mut charged = 0;
        for n in 0..GENERATIONS {
            let command = capture(key, generation(n), 0);
            let expected = vec![world.apply(account, &command, now)];
            assert_eq!(store.execute(account, vec![command], now).await.unwrap(), expected);
            if let [Ok(Outcome::Captured(settlement))] = &expected[..] {
                charged += settlement.charged.nanos();
            }
        }
        let key = spend(store, account, key).await;
        assert_eq!((key.used, key.held), (nanos(charged), nanos(0)));
    }
}
