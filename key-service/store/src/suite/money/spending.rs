//! Cases about spending: the ledger's answers do not depend on batches and concurrency.

use std::{cell::RefCell, collections::HashSet, sync::Arc, time::Duration};

use key_service_ledger::{names, stored::House, view::FORM};
use proptest::test_runner::{Config, TestRunner};
use records::{Commit, Record as StoredRecord, Revision, Write};
use shared::{
    ids::{AccountId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use crate::{
    store::{DueHold, Error, JournalEntry, Ledger as _, Store, UsageLine},
    suite::{
        Subject, act, after, capture, due_holds, execute_one, hold, make_key, nanos, new_group, new_key,
        nouns::{events::each_key_and_group_has_its_events, steps::kept},
        open_account, open_account_with, spend, tick,
    },
};
use domain::{
    audit::Audit,
    event::{Actor, Event},
    key::KeyPatch,
    ledger::{
        BoundsPatch, Command, Ending, Outcome, PaidTo, Progress, Record, RecordId, Refused,
        histories::{
            self, ACCOUNTS, GENERATIONS, GROUPS, KEY_LIMIT_REACHED, KEYS, LONGEST_HISTORY, START, Step,
            World, account, generation, group, history, key, of_history,
        },
    },
    usage::Day,
};

/// Number of random histories for each store. A history has a few hundred commands.
const HISTORIES: u32 = 48;

/// Number of entries to read at a time. It is small, so that there are several pages.
const PAGE: usize = 3;

/// Number of concurrent callers.
const CALLERS: u8 = 48;

pub(crate) async fn an_unknown_account_is_refused_everything(subject: &mut impl Subject) {
    let store = subject.store();
    let deposit = Command::Deposit {
        id: domain::ledger::histories::deposit(1),
        amount: nanos(5),
        note: String::new(),
        payment_id: None,
        to: PaidTo::Account,
        actor: Actor::System,
    };
    let commands = vec![deposit, hold(key(1), generation(1), 5, 7), capture(key(1), generation(1), 5)];
    let outcomes = store.execute(account(1), commands, START).await.unwrap();
    assert_eq!(outcomes, vec![Err(Refused::UnknownKey); 3]);
    assert_eq!(store.accounts().await.unwrap(), []);
    assert!(store.accounts_with_holds().await.accounts.is_empty());
}

pub(crate) async fn no_commands_have_no_outcomes(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    assert_eq!(subject.store().execute(account, Vec::new(), START).await.unwrap(), []);
}

pub(crate) async fn what_ran_on_after_a_cut_is_recorded_as_shortfall(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let key = make_key(store, account, 1, None).await;
    execute_one(store, account, hold(key, generation(1), 200, 7)).await.unwrap();
    let Command::Capture { key, generation, model, total, estimated, .. } = capture(key, generation(1), 130)
    else {
        unreachable!()
    };
    let cut = Command::Capture { key, generation, model, total, chargeable: Some(nanos(100)), estimated };
    let captured = execute_one(store, account, cut.clone()).await;
    let Ok(Outcome::Captured(settlement)) = &captured else { panic!("{captured:?}") };
    assert_eq!((settlement.charged, settlement.shortfall()), (nanos(100), nanos(30)));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(execute_one(store, account, cut).await, captured);
    let spent = spend(store, account, key).await;
    assert_eq!((spent.budget.used, spent.budget.held), (nanos(100), nanos(0)));
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}

pub(crate) async fn a_capture_without_a_hold_is_billed_once(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let key = make_key(store, account, 1, Some(100)).await;
    execute_one(store, account, hold(key, generation(2), 20, 7)).await.unwrap();
    let lost = capture(key, generation(1), 300);
    let captured = execute_one(store, account, lost.clone()).await;
    let Ok(Outcome::Captured(settlement)) = &captured else { panic!("{captured:?}") };
    assert_eq!((settlement.charged, settlement.shortfall()), (nanos(80), nanos(220)));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(execute_one(store, account, lost).await, captured);
    let spent = spend(store, account, key).await;
    assert_eq!((spent.budget.used, spent.budget.held), (nanos(80), nanos(20)));
    let unknown =
        execute_one(store, account, capture(domain::ledger::histories::key(9), generation(3), 1)).await;
    assert_eq!(unknown, Err(Refused::UnknownKey));
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}

pub(crate) async fn a_capture_whose_bill_may_have_been_dropped_is_no_bill(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let key = make_key(store, account, 1, None).await;
    let billed = vec![hold(key, generation(1), 70, 7), capture(key, generation(1), 70)];
    store.execute(account, billed, START).await.unwrap();
    let bill = store.entry_of(account, generation(1)).await.unwrap();
    // Housekeeping drops the bills from that time.
    let part = names::generation(generation(1)).set.part;
    let house = House { generations: part + 1, ..key_service_ledger::house::begin(account) };
    let dropped = StoredRecord::of(Revision([7; 8]), FORM, &house);
    let writes =
        vec![Write::Put(names::house().into(), dropped), Write::Drop(names::generation(generation(1)).set)];
    store.records.commit(&names::space(account), Commit { guards: Vec::new(), writes }).await.unwrap();
    let captured = execute_one(store, account, capture(key, generation(1), 70)).await;
    let Ok(Outcome::Captured(late)) = &captured else { panic!("{captured:?}") };
    assert_eq!((late.charged, late.cost, late.ending), (nanos(0), nanos(70), Ending::Late));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(execute_one(store, account, capture(key, generation(1), 70)).await, captured);
    // The late capture is in the journal, but the bill does not change, and nothing is charged or counted twice.
    let entries = store.journal(account, 0, 9).await.unwrap().entries;
    assert_eq!(
        entries.iter().map(|e| e.entry.settlement.ending).collect::<Vec<_>>(),
        [Ending::Captured, Ending::Late]
    );
    assert_eq!(store.entry_of(account, generation(1)).await.unwrap(), bill);
    assert_eq!(spend(store, account, key).await.budget.used, nanos(70));
    let today = Day::of(START);
    let lines = store.usage(account, today..=today, None).await.unwrap();
    assert_eq!(lines.iter().map(|line| line.counts.of.requests).sum::<u64>(), 1);
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
    // A generation that is old but still has its hold is billed like any other.
    let long = GenerationId::new(START.minus(Duration::from_hours(30)), [2; 10]);
    execute_one(store, account, hold(key, long, 50, 7)).await.unwrap();
    execute_one(store, account, capture(key, long, 40)).await.unwrap();
    assert_eq!(spend(store, account, key).await.budget.used, nanos(110));
}

pub(crate) async fn a_capture_after_an_expiry_replaces_its_bill(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let key = make_key(store, account, 1, Some(200)).await;
    let report = |generation, cost| {
        let usage = Usage::of(9, 0, 9);
        let progress = Progress { usage, cost: nanos(cost), upstream_cost: None, course: None };
        Command::Extend { key, generation, most: nanos(0), progress, lease_ticks: 1 }
    };
    let (too_much, too_little) = (generation(1), generation(2));
    let commands = vec![
        hold(key, too_much, 60, 1),
        hold(key, too_little, 60, 1),
        report(too_much, 58),
        report(too_little, 1),
    ];
    store.execute(account, commands, START).await.unwrap();
    tick(store, account, 1).await;
    let expire = |generation| Command::Expire { key, generation };
    store.execute(account, vec![expire(too_much), expire(too_little)], START).await.unwrap();
    assert_eq!(spend(store, account, key).await.budget.used, nanos(59));
    subject.interrupt().await;
    let store = subject.store();
    execute_one(store, account, capture(key, too_much, 1)).await.unwrap();
    assert_eq!(spend(store, account, key).await.budget.used, nanos(2));
    execute_one(store, account, capture(key, too_little, 500)).await.unwrap();
    let spent = spend(store, account, key).await;
    assert_eq!((spent.budget.used, spent.budget.held), (nanos(200), nanos(0)));
    assert_eq!(store.accounts().await.unwrap()[0].credit, nanos(800));
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}

pub(crate) async fn the_largest_numbers_come_back(subject: &mut impl Subject) {
    let store = subject.store();
    let most = NanoUsd::MAX;
    let account = open_account_with(store, 1, most.nanos()).await;
    let key = make_key(store, account, 1, Some(most.nanos())).await;
    let held = execute_one(store, account, hold(key, generation(1), most.nanos(), 7)).await;
    assert_eq!(held, Ok(histories::held(most)));
    assert_eq!(spend(store, account, key).await.budget.held, most);
    let usage = Usage::of(u64::MAX, u64::MAX - 1, 1 << 63);
    let total = Progress { usage, cost: most, upstream_cost: None, course: None };
    let model = "Model Flash".into();
    let capture =
        Command::Capture { key, generation: generation(1), model, total, chargeable: None, estimated: true };
    let captured = execute_one(store, account, capture.clone()).await;
    let Ok(Outcome::Captured(settlement)) = &captured else { panic!("{captured:?}") };
    assert_eq!((settlement.usage, settlement.charged), (usage, most));
    subject.interrupt().await;
    assert_eq!(execute_one(subject.store(), account, capture).await, captured);
    assert_eq!(spend(subject.store(), account, key).await.budget.used, most);
}

pub(crate) async fn holds_at_once_never_pass_the_limit(subject: &mut impl Subject) {
    let account = open_account_with(subject.store(), 1, 1_000_000).await;
    let key = make_key(subject.store(), account, 1, Some(1_000)).await;
    spend_it_all(subject.store(), account, &[key], KEY_LIMIT_REACHED).await;
    let spent = spend(subject.store(), account, key).await;
    assert_eq!((spent.budget.used, spent.budget.held), (nanos(1_000), nanos(0)));
}

pub(crate) async fn holds_at_once_never_pass_the_credit(subject: &mut impl Subject) {
    let account = open_account_with(subject.store(), 1, 1_000).await;
    let mut keys = Vec::new();
    for n in 0..4 {
        keys.push(make_key(subject.store(), account, n, None).await);
    }
    spend_it_all(subject.store(), account, &keys, Refused::CreditEmpty).await;
    let summary = subject.store().accounts().await.unwrap().remove(0);
    assert_eq!((summary.credit, summary.held), (nanos(0), nanos(0)));
}

/// Many callers open holds and capture them until everything is spent. No sum may ever exceed the limit.
async fn spend_it_all(store: &Arc<Store>, account: AccountId, keys: &[KeyId], end: Refused) {
    let callers = (0..CALLERS).map(|n| {
        let (store, key, end) = (Arc::clone(store), keys[usize::from(n) % keys.len()], end.clone());
        tokio::spawn(async move {
            for turn in 0.. {
                let generation = GenerationId::new(after(turn), [n; 10]);
                match execute_one(&store, account, hold(key, generation, 10, 7)).await {
                    Ok(Outcome::Held { amount, .. }) => {
                        assert_eq!(amount, nanos(10));
                        execute_one(&store, account, capture(key, generation, 10)).await.unwrap();
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
            let key = spend(store, account, *key).await;
            let spoken_for = key.budget.used.checked_add(key.budget.held).unwrap();
            assert!(key.budget.limit.is_none_or(|limit| spoken_for <= limit), "{key:?}");
        }
    }
    for caller in callers {
        caller.await.unwrap();
    }
}

pub(crate) async fn a_capture_sent_by_many_at_once_is_billed_once(subject: &mut impl Subject) {
    let account = open_account_with(subject.store(), 1, 1_000).await;
    let key = make_key(subject.store(), account, 1, None).await;
    execute_one(subject.store(), account, hold(key, generation(1), 100, 7)).await.unwrap();
    let callers = (0..CALLERS).map(|n| {
        let store = Arc::clone(subject.store());
        // Each caller reports a different cost.
        tokio::spawn(async move { execute_one(&store, account, capture(key, generation(1), n.into())).await })
    });
    let mut heard = Vec::new();
    for caller in callers.collect::<Vec<_>>() {
        heard.push(caller.await.unwrap().unwrap());
    }
    assert!(heard.iter().all(|outcome| *outcome == heard[0]));
    let Outcome::Captured(settlement) = &heard[0] else { panic!("{heard:?}") };
    assert_eq!(spend(subject.store(), account, key).await.budget.used, settlement.charged);
}

pub(crate) async fn changes_at_once_lose_no_money(subject: &mut impl Subject) {
    let account = open_account_with(subject.store(), 1, 1_000_000).await;
    let key = make_key(subject.store(), account, 1, None).await;
    let owner = Arc::clone(subject.store());
    let owner = tokio::spawn(async move {
        for n in 0..100 {
            let patch = KeyPatch {
                label: Some(n.to_string()),
                bounds: BoundsPatch::of_limit(Some(nanos(n))),
                ..KeyPatch::default()
            };
            owner.update_key(account, key, patch, &act(START)).await.unwrap();
        }
        owner
            .update_key(
                account,
                key,
                KeyPatch { bounds: BoundsPatch::of_limit(None), ..KeyPatch::default() },
                &act(START),
            )
            .await
            .unwrap();
    });
    let mut charged = 0;
    for n in 0..100 {
        let generation = GenerationId::new(after(n), [1; 10]);
        let commands = vec![hold(key, generation, 7, 7), capture(key, generation, 7)];
        let outcomes = subject.store().execute(account, commands, START).await.unwrap();
        // If the limit was too low for the hold, the capture bills what is left of the limit.
        if let [_, Ok(Outcome::Captured(settlement))] = &outcomes[..] {
            charged += settlement.charged.nanos();
        }
    }
    owner.await.unwrap();
    let after = subject.store().key(account, key).await.unwrap().unwrap();
    assert_eq!((after.label.as_str(), after.spend.budget.limit), ("99", None));
    assert_eq!((after.spend.budget.used, after.spend.budget.held), (nanos(charged), nanos(0)));
}

pub(crate) async fn it_answers_a_ping(subject: &mut impl Subject) {
    subject.store().ping().await.unwrap();
}

/// Runs the same history with only the ledger's rules and with the store. The answers, and the books at the end, must
/// be equal.
pub(crate) fn random_histories_end_as_the_ledger_says<S: Subject>() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: HISTORIES, failure_persistence: None, ..Config::default() };
    // Some subjects share a server. The server keeps running from one history to the next as long as the previous
    // subject is kept.
    let previous = RefCell::new(None);
    let outcome = TestRunner::new(config).run(&history(), |history| {
        let mut subject = runtime.block_on(S::new());
        runtime.block_on(live(&mut subject, history));
        previous.replace(Some(subject));
        Ok(())
    });
    outcome.unwrap();
}

/// Fails if the store has failed. A refusal is fine, because a step of a history may be refused.
fn refused_or_done<T, R>(answer: Result<T, Error<R>>) {
    if let Err(Error::Store(cause)) = answer {
        panic!("{cause}");
    }
}

/// Runs a history in the store, and compares the answers and books.
pub(crate) async fn live(subject: &mut impl Subject, history: Vec<Step>) {
    let (mut world, mut now) = (World::new(), START);
    for a in 0..ACCOUNTS {
        open_account(subject.store(), a).await;
        for g in 0..GROUPS {
            let mut new = new_group(account(a), g);
            new.group.spend = world.groups[&(account(a), group(g))].clone();
            subject.store().create_group(new, None, &act(START)).await.unwrap();
        }
        for k in 0..KEYS {
            let mut new = new_key(account(a), k);
            new.key.spend = world.keys[&(account(a), key(k))].clone();
            subject.store().create_key(new, None, &act(START)).await.unwrap();
        }
    }
    let middle = history.len() / 2;
    for (n, step) in history.into_iter().enumerate() {
        if n == middle {
            subject.interrupt().await;
        }
        let store = subject.store();
        match step {
            Step::Clock(change) => now = change.after(now),
            Step::Update(account, key, patch) => {
                world.update(account, key, &patch, now);
                refused_or_done(store.update_key(account, key, patch, &act(now)).await);
            }
            Step::UpdateGroup(account, group, patch) => {
                world.update_group(account, group, &patch, now);
                refused_or_done(store.update_group(account, group, patch, &act(now)).await);
            }
            Step::Archive(account, group) => {
                world.archive(account, group, now);
                store.archive_group(account, group, &act(now)).await.unwrap();
            }
            Step::Stand(account, to) => {
                world.stand(account, &to, now);
                refused_or_done(store.change_standing(account, &to, &act(now)).await);
            }
            Step::Rotate(new) => {
                world.rotate(&new, now);
                refused_or_done(store.rotate_key(new, None, &act(now)).await);
            }
            Step::Revoke(account, key) => {
                world.revoke(account, key, now);
                store.revoke_key(account, key, &act(now)).await.unwrap();
            }
            Step::Execute(account, commands) => {
                let expected = world.execute(account, &commands, now);
                assert_eq!(store.execute(account, commands, now).await.unwrap(), expected);
            }
        }
    }
    the_books_are_equal(subject.store(), &world).await;
    the_trails_are_equal(subject.store(), &world).await;
    the_events_are_equal(subject.store(), &world).await;
    the_books_balance(subject.store(), world, now).await;
}

/// Compares the events that commands wrote, with their ids.
async fn the_events_are_equal(store: &Store, world: &World) {
    let of_commands = |event: &Event| {
        let payments = ["credit.added", "credit.refunded", "group.paid", "group.refunded"];
        payments.contains(&event.kind.as_str()) || event.kind.threshold().is_some()
    };
    let sorted = |mut events: Vec<String>| {
        events.sort();
        events
    };
    for account in world.accounts.keys() {
        each_key_and_group_has_its_events(store, *account, 100).await;
        let kept = kept(store, *account).await;
        let kept =
            kept.iter().map(|event| &event.event).filter(|event| of_commands(event)).map(Event::to_json);
        let expected = world.events.get(account).into_iter().flatten().map(|told| told.event.to_json());
        assert_eq!(sorted(kept.collect()), sorted(expected.collect()));
    }
}

/// Compares everything that can be read: keys, groups, accounts, open holds.
async fn the_books_are_equal(store: &Store, world: &World) {
    the_groups_are_equal(store, world).await;
    for ((account, key), expected) in &world.keys {
        assert_eq!(spend(store, *account, *key).await, *expected);
    }
    for summary in store.accounts().await.unwrap() {
        let expected = world.accounts[&summary.id];
        assert_eq!((summary.credit, summary.held), (expected.credit, expected.held));
        assert_eq!(summary.standing, expected.standing);
    }
    let mut holding: HashSet<_> = HashSet::new();
    for account in world.accounts.keys() {
        let open = world.records.iter().filter_map(|((of, id), record)| match (id, record) {
            (RecordId::Generation(generation), Record::Open(hold)) if of == account => {
                Some((DueHold { key: hold.payer.key, generation: *generation }, hold.lease_until))
            }
            _ => None,
        });
        let mut open: Vec<_> = open.collect();
        if !open.is_empty() {
            holding.insert(*account);
        }
        let tick = world.accounts[account].tick;
        let asked = execute_one(store, *account, Command::Tick { seen: None }).await;
        assert_eq!(asked, Ok(Outcome::Ticked(tick)));
        open.retain(|(_, lease_until)| *lease_until <= tick);
        open.sort_by_key(|(hold, _)| hold.generation);
        let due: Vec<_> = open.into_iter().map(|(hold, _)| hold).collect();
        assert_eq!(due_holds(store, *account).await, due);
    }
    let listed: HashSet<_> = store.accounts_with_holds().await.accounts.into_iter().collect();
    assert!(listed.is_superset(&holding), "{listed:?} {holding:?}");
}

async fn the_groups_are_equal(store: &Store, world: &World) {
    for ((account, group), expected) in &world.groups {
        assert_eq!(store.group(*account, *group).await.unwrap().unwrap().spend, *expected);
    }
}

/// Compares the journal and the counters, and audits the account.
async fn the_trails_are_equal(store: &Store, world: &World) {
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
        let days = Day::of(START)..=Day::of(START.plus(LONGEST_HISTORY));
        super::margins::the_sums_are_those_of(store, *account, days.clone(), &expected.journal).await;
        let before = expected.before();
        let numbered = (1..).zip(expected.journal).zip(before);
        let numbered = numbered.map(|((number, (generation, entry)), before)| JournalEntry {
            number,
            generation,
            entry,
            before,
        });
        assert_eq!(entries, numbered.collect::<Vec<_>>());
        let lines =
            expected.counted.into_iter().map(|((day, payer), counts)| UsageLine { day, payer, counts });
        let lines: Vec<_> = lines.collect();
        assert_eq!(store.usage(*account, days.clone(), None).await.unwrap(), lines);
        let audit = store.audit(*account).await.unwrap().unwrap();
        let keys = world.keys.keys().filter(|(of, _)| of == account).count() as u64;
        let groups = world.groups.keys().filter(|(of, _)| of == account).count() as u64;
        assert_eq!(audit, Audit { entries: entries.len() as u64, keys, groups, wrong: Vec::new() });
    }
}

/// Captures everything, and checks that no hold is left then and that the charges of all settlements add up to what the
/// keys have used.
async fn the_books_balance(store: &Store, mut world: World, now: Timestamp) {
    let now = now.plus(Duration::from_secs(1));
    for (account, key) in world.clone().keys.into_keys() {
        let mut charged = 0;
        for n in 0..GENERATIONS {
            let command = capture(key, of_history(n), 0);
            let expected = world.execute(account, std::slice::from_ref(&command), now);
            assert_eq!(store.execute(account, vec![command], now).await.unwrap(), expected);
            if let [Ok(Outcome::Captured(settlement))] = &expected[..] {
                charged += settlement.charged.nanos();
            }
        }
        let spent = spend(store, account, key).await;
        assert_eq!(spent, world.keys[&(account, key)]);
        assert_eq!((spent.budget.used, spent.budget.held), (nanos(charged), nanos(0)));
    }
    the_groups_are_equal(store, &world).await;
}
