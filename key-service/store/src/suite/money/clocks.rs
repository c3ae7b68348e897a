//! Cases about books, and about lists ordered by time, while wall clocks are wrong.

use std::{collections::BTreeMap, time::Duration};

use domain::{
    key::KeyPatch,
    ledger::{
        BoundsPatch, Command, Ending, Progress,
        histories::{START, generation},
    },
    search::EntrySearch,
    usage::Day,
};
use shared::{calendar::Per, ids::AccountId, time::Timestamp, tokens::Usage, wire::Limit};

use crate::{
    store::{JournalEntry, Ledger as _, Store},
    suite::{Subject, act, after, capture, hold, make_key, nanos, open_account_with, tick},
};

const DAY: Duration = Duration::from_hours(24);

/// Returns a patch that limits each day and each hour to this amount.
fn windows(amount: i64) -> KeyPatch {
    let windows = [Per::Day, Per::Hour].map(|per| Limit::new(nanos(amount), per));
    let bounds = BoundsPatch { windows: Some(windows.to_vec()), ..BoundsPatch::default() };
    KeyPatch { bounds, ..KeyPatch::default() }
}

async fn found(store: &Store, account: AccountId, search: &EntrySearch) -> Vec<JournalEntry> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let page = store.find_entries(account, search.clone(), before, 30).await.unwrap();
        all.extend(page.found);
        before = page.next;
        if before.is_none() {
            return all;
        }
    }
}

pub(crate) async fn lists_by_time_have_each_bill_once_after_clocks_were_days_ahead(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    let account = open_account_with(store, 1, 100_000).await;
    let keys = [make_key(store, account, 1, None).await, make_key(store, account, 2, None).await];
    store.update_key(account, keys[0], windows(50_000), &act(START)).await.unwrap();
    for n in 0..200_u8 {
        let ahead = match n {
            40..=49 => 3 * DAY,
            100..=109 => 400 * DAY,
            150 => 2 * DAY,
            _ => Duration::ZERO,
        };
        let now = after(60 * u64::from(n)).plus(ahead);
        let key = keys[usize::from(n % 2)];
        let commands = vec![hold(key, generation(n), 10, 7), capture(key, generation(n), 10)];
        assert!(store.execute(account, commands, now).await.unwrap().iter().all(Result::is_ok));
    }
    subject.interrupt().await;
    let store = subject.store();
    let journal = store.journal(account, 0, 1_000).await.unwrap().entries;
    let mut days: BTreeMap<Day, u64> = BTreeMap::new();
    for entry in &journal {
        *days.entry(Day::of(entry.entry.settlement.at)).or_default() += 1;
    }
    assert_eq!(days.values().copied().collect::<Vec<_>>()[1..], [1, 10, 10], "{days:?}");
    for key in [None, Some(keys[0]), Some(keys[1])] {
        let mut listed = Vec::new();
        for (day, bills) in &days {
            let [begins, ends] = [*day, day.plus(1)].map(|day| Some(Timestamp::from_millis(day.millis().0)));
            let of_day =
                found(store, account, &EntrySearch { key, begins, ends, ..EntrySearch::default() }).await;
            let counted = store.usage(account, *day..=*day, None).await.unwrap();
            assert_eq!(counted.iter().map(|line| line.counts.of.requests).sum::<u64>(), *bills);
            listed.extend(of_day.iter().map(|entry| entry.number));
        }
        let is_of = |entry: &&JournalEntry| key.is_none_or(|key| entry.entry.settlement.payer.key == key);
        listed.sort_unstable();
        assert!(
            listed.iter().eq(journal.iter().filter(is_of).map(|entry| &entry.number)),
            "{key:?} {listed:?}"
        );
        assert_eq!(
            found(store, account, &EntrySearch { key, ..EntrySearch::default() }).await.len(),
            listed.len()
        );
    }
    for n in 0..200 {
        let bill = store.entry_of(account, generation(n)).await.unwrap();
        assert_eq!(bill.map(|bill| bill.generation), Some(generation(n)));
    }
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}

pub(crate) async fn a_window_set_while_bills_are_ahead_of_the_clock_counts_later_ones_alone(
    subject: &mut impl Subject,
) {
    for ahead in [Duration::from_hours(3), 5 * DAY] {
        let n = u8::from(ahead > DAY) + 1;
        let store = subject.store();
        let account = open_account_with(store, n, 100_000).await;
        let key = make_key(store, account, n, None).await;
        let early = START.plus(ahead);
        let [expires, at_once, later] = [0, 1, 2].map(generation);
        let progress =
            Progress { usage: Usage::of(1, 0, 60), cost: nanos(60), upstream_cost: None, course: None };
        let report = Command::Extend { key, generation: expires, most: nanos(60), progress, lease_ticks: 1 };
        let captured = [hold(key, at_once, 30, 7), capture(key, at_once, 30)];
        let commands = [hold(key, expires, 60, 1), report].into_iter().chain(captured).collect();
        store.execute(account, commands, early).await.unwrap();
        tick(store, account, 2).await;
        let due = Command::Expire { key, generation: expires };
        store.execute(account, vec![due], early).await.unwrap();
        store.update_key(account, key, windows(100), &act(START)).await.unwrap();
        let commands = vec![hold(key, later, 20, 7), capture(key, later, 20), capture(key, expires, 35)];
        store.execute(account, commands, after(60)).await.unwrap();
        let budget = store.key(account, key).await.unwrap().unwrap().spend.budget;
        let used: Vec<i64> =
            budget.bounds.unwrap().windows.iter().map(|window| window.used.nanos()).collect();
        let late = store.entry_of(account, expires).await.unwrap().unwrap().entry.settlement;
        assert_eq!((late.ending, late.charged), (Ending::Captured, nanos(35)));
        assert_eq!(used, [20; 2], "{ahead:?}");
        assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, [], "{ahead:?}");
    }
}
