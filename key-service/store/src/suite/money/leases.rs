//! Cases about lease time: ticks counted by the ledger, independent of clocks.

use std::sync::Arc;

use shared::ids::GenerationId;

use crate::{
    store::{DueHold, Ledger as _},
    suite::{
        Subject, after, capture, due_holds, execute_one, hold, make_key, nanos, open_account,
        open_account_with, tick,
    },
};
use domain::ledger::{
    Command, Outcome, Progress,
    histories::{self, START, account, generation},
};

/// Number of holds: enough to need several pages.
const MANY: u64 = 1_500;
/// Number of commands executed in one call.
const AT_ONCE: usize = 300;

pub(crate) async fn holds_are_due_when_the_ledger_has_counted_their_lease(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 100).await;
    let key = make_key(store, account, 1, None).await;
    for (n, lease) in [(1, 3), (2, 1), (3, 2)] {
        execute_one(store, account, hold(key, generation(n), 5, lease)).await.unwrap();
    }
    assert_eq!(due_holds(store, account).await, []);
    tick(store, account, 1).await;
    subject.interrupt().await;
    let store = subject.store();
    let due = |n| DueHold { key, generation: generation(n) };
    assert_eq!(due_holds(store, account).await, [due(2)]);
    assert_eq!(store.holds_of(account, key).await.unwrap(), 3);
    assert_eq!(store.holds_of(account, histories::key(9)).await.unwrap(), 0);
    tick(store, account, 1).await;
    assert_eq!(due_holds(store, account).await, [due(2), due(3)]);
    let expire = |n| Command::Expire { key, generation: generation(n) };
    // A clock that is years ahead changes nothing.
    let outcomes = store.execute(account, vec![expire(1), expire(2)], after(99_999_999)).await.unwrap();
    assert_eq!(outcomes[0], Ok(Outcome::NotDue));
    assert!(matches!(outcomes[1], Ok(Outcome::Expired(_))), "{outcomes:?}");
    execute_one(store, account, capture(key, generation(3), 5)).await.unwrap();
    assert_eq!(due_holds(store, account).await, []);
    tick(store, account, 1).await;
    assert_eq!(due_holds(store, account).await, [due(1)]);
}

pub(crate) async fn an_extension_counts_from_the_tick_it_comes_at(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 100).await;
    let key = make_key(store, account, 1, None).await;
    let generation = generation(1);
    let extend = |lease_ticks| {
        let progress = Progress::default();
        Command::Extend { key, generation, most: nanos(5), progress, lease_ticks }
    };
    execute_one(store, account, hold(key, generation, 5, 7)).await.unwrap();
    tick(store, account, 6).await;
    execute_one(store, account, extend(7)).await.unwrap();
    // A shorter lease does not shorten the current lease.
    execute_one(store, account, extend(1)).await.unwrap();
    tick(store, account, 6).await;
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(due_holds(store, account).await, []);
    tick(store, account, 1).await;
    assert_eq!(due_holds(store, account).await, [DueHold { key, generation }]);
}

pub(crate) async fn of_many_ticks_at_once_one_counts(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let other = open_account(subject.store(), 2).await;
    tick(subject.store(), account, 4).await;
    subject.interrupt().await;
    let tickers = (0..32).map(|_| {
        let store = Arc::clone(subject.store());
        tokio::spawn(async move { execute_one(&store, account, Command::Tick { seen: Some(4) }).await })
    });
    for ticker in tickers.collect::<Vec<_>>() {
        assert_eq!(ticker.await.unwrap(), Ok(Outcome::Ticked(5)));
    }
    let asked = execute_one(subject.store(), other, Command::Tick { seen: None }).await;
    assert_eq!(asked, Ok(Outcome::Ticked(0)));
}

pub(crate) async fn accounts_with_holds_are_listed(subject: &mut impl Subject) {
    let store = subject.store();
    let mut accounts = Vec::new();
    for n in 0..3 {
        let account = open_account_with(store, n, 100).await;
        accounts.push((account, make_key(store, account, 1, None).await));
    }
    let [(with_money, first), (without, _), (of_nothing, third)] = accounts[..] else { unreachable!() };
    execute_one(store, with_money, hold(first, generation(1), 5, 7)).await.unwrap();
    // A hold of zero also has a lease.
    execute_one(store, of_nothing, hold(third, generation(1), 0, 7)).await.unwrap();
    subject.interrupt().await;
    let mut holders = subject.store().accounts_with_holds().await;
    assert!(holders.missing.is_none(), "{holders:?}");
    holders.accounts.sort();
    assert!(!holders.accounts.contains(&without));
    assert_eq!(holders.accounts, [with_money, of_nothing]);
}

pub(crate) async fn a_hold_opened_again_for_another_key_is_due_once(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 100).await;
    let (first, second) = (make_key(store, account, 1, None).await, make_key(store, account, 2, None).await);
    let generation = generation(1);
    execute_one(store, account, hold(first, generation, 5, 1)).await.unwrap();
    let release = Command::Release { key: first, generation };
    let at_once = vec![release, hold(second, generation, 5, 2)];
    store.execute(account, at_once, START).await.unwrap();
    tick(store, account, 9).await;
    assert_eq!(due_holds(store, account).await, [DueHold { key: second, generation }]);
}

pub(crate) async fn due_holds_are_read_page_by_page(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 10_000).await;
    let key = make_key(store, account, 1, None).await;
    let many: Vec<_> = (0..MANY).map(|n| GenerationId::new(after(n), [1; 10])).collect();
    for some in many.chunks(AT_ONCE) {
        let holds = some.iter().map(|generation| hold(key, *generation, 1, 1));
        store.execute(account, holds.collect(), START).await.unwrap();
    }
    tick(store, account, 1).await;
    let expected: Vec<_> = many.iter().map(|generation| DueHold { key, generation: *generation }).collect();
    assert_eq!(due_holds(store, account).await, expected);
    let first = store.due_holds(account, None).await.unwrap();
    assert!(first.holds.len() < expected.len() && first.next.is_some(), "{}", first.holds.len());
    assert_eq!(due_holds(store, self::account(9)).await, []);
}
