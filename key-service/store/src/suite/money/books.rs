//! Cases about records of spending: the journal, the counters, and books that pass an audit.

use std::{sync::Arc, time::Duration};

use key_service_ledger::{names, stored::AccountRecord, view::FORM};
use records::{Commit, Record, Revision, Write};
use shared::{
    clock::{Clock as _, System},
    ids::{AccountId, GenerationId, KeyId},
    time::Timestamp,
    tokens::Usage,
};

use crate::{
    store::{Hour, JournalPage, Ledger as _, OtherSums, RefusedLine, Store},
    suite::{
        Fault, Subject, act, after, capture, hold, make_key, nanos, new_group, new_key, open_account_with,
        tick,
    },
};
use domain::{
    audit::{Audit, BudgetOwner, Figure, Quantity, Wrong},
    ledger::{
        Command, Ending, Entry, NewHold, Outcome, Progress,
        histories::{self, START, account, generation, key, new_hold},
    },
    search::{EntrySearch, Outcome as Wanted},
    usage::{Counts, Day, Sums},
};

/// Number of rounds that each spender makes while audits run.
const TURNS: u64 = 30;

/// Reads the account's entries: number, generation, charge, change, balance afterwards.
async fn journal(store: &Store, account: AccountId) -> Vec<(u64, GenerationId, i64, i64, i64)> {
    let page = store.journal(account, 0, usize::MAX).await.unwrap();
    let entry = |entry: crate::store::JournalEntry| {
        let Entry { settlement, delta, used_after } = entry.entry;
        (entry.number, entry.generation, settlement.charged.nanos(), delta.nanos(), used_after.nanos())
    };
    page.entries.into_iter().map(entry).collect()
}

async fn expire_all(store: &Store, account: AccountId, key: KeyId, generations: &[u8], now: Timestamp) {
    tick(store, account, 7).await;
    let expire = |n: &u8| Command::Expire { key, generation: generation(*n) };
    let outcomes = store.execute(account, generations.iter().map(expire).collect(), now).await.unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(Outcome::Expired(_)))), "{outcomes:?}");
}

fn report(key: KeyId, n: u8, cost: i64) -> Command {
    let usage = Usage::of(10, 4, cost.unsigned_abs());
    let progress = Progress { usage, cost: nanos(cost), upstream_cost: None, course: None };
    Command::Extend { key, generation: generation(n), most: nanos(0), progress, lease_ticks: 7 }
}

pub(crate) async fn entries_come_in_the_order_of_settlement(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let key = make_key(store, account, 1, None).await;
    let held = (1..=4).map(|n| hold(key, generation(n), 100, 7));
    store.execute(account, held.collect(), START).await.unwrap();
    let at_once = vec![
        capture(key, generation(3), 30),
        Command::Release { key, generation: generation(4) },
        capture(key, generation(1), 10),
        capture(key, generation(3), 99),
    ];
    store.execute(account, at_once, START).await.unwrap();
    store.execute(account, vec![capture(key, generation(2), 120)], after(1)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let all =
        [(1, generation(3), 30, 30, 30), (2, generation(1), 10, 10, 40), (3, generation(2), 120, 120, 160)];
    assert_eq!(journal(store, account).await, all);
    let JournalPage { entries, gone_until } = store.journal(account, 2, 1).await.unwrap();
    assert_eq!((entries.len(), gone_until), (1, 0));
    let last = &entries[0].entry.settlement;
    assert_eq!((last.payer.key, last.payer.model.as_str(), last.at), (key, "Model Flash", after(1)));
    assert_eq!((last.estimated, last.ending, last.usage.completion), (false, Ending::Captured, 120));
    assert_eq!(store.journal(account, 3, 9).await.unwrap().entries, []);
    assert_eq!(store.journal(domain::ledger::histories::account(9), 0, 9).await.unwrap().entries, []);
}

pub(crate) async fn a_correction_is_an_entry_of_its_own(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let key = make_key(store, account, 1, None).await;
    let mut commands: Vec<_> = (1..=3).map(|n| hold(key, generation(n), 100, 7)).collect();
    commands.extend([report(key, 1, 40), report(key, 2, 60)]);
    store.execute(account, commands, START).await.unwrap();
    expire_all(store, account, key, &[1, 2], after(30)).await;
    let late = vec![
        capture(key, generation(3), 5),
        capture(key, generation(1), 70),
        capture(key, generation(2), 10),
    ];
    store.execute(account, late, after(40)).await.unwrap();
    // Repeating a capture adds nothing.
    store.execute(account, vec![capture(key, generation(1), 70)], after(41)).await.unwrap();
    subject.interrupt().await;
    let expected = [
        (1, generation(1), 40, 40, 40),
        (2, generation(2), 60, 60, 100),
        (3, generation(3), 5, 5, 105),
        (4, generation(1), 70, 30, 135),
        (5, generation(2), 10, -50, 85),
    ];
    assert_eq!(journal(subject.store(), account).await, expected);
    let page = subject.store().journal(account, 0, 9).await.unwrap();
    let exact: Vec<_> = page.entries.iter().map(|e| !e.entry.settlement.estimated).collect();
    assert_eq!(exact, [false, false, true, true, true]);
    let audit = subject.store().audit(account).await.unwrap();
    assert_eq!(audit, Some(Audit { entries: 5, keys: 1, groups: 0, wrong: Vec::new() }));
}

pub(crate) async fn usage_is_counted_by_day_key_and_model(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let (first, second) = (make_key(store, account, 1, None).await, make_key(store, account, 2, None).await);
    let mut commands: Vec<_> = [(first, 1), (first, 2), (first, 3), (second, 4)]
        .map(|(key, n)| hold(key, generation(n), 100, 7))
        .into();
    commands.extend([hold(second, generation(6), 100, 99), report(second, 6, 9)]);
    let other = NewHold { model: "Model Max".into(), ..new_hold(first, generation(5), nanos(10)) };
    commands.push(Command::Hold(other));
    commands.extend([
        report(first, 3, 40),
        capture(first, generation(1), 7),
        capture(second, generation(4), 1),
    ]);
    commands.push(capture(first, generation(5), 10));
    store.execute(account, commands, START).await.unwrap();
    store.execute(account, vec![capture(first, generation(2), 8)], START).await.unwrap();
    expire_all(store, account, first, &[3], after(30)).await;
    tick(store, account, 99).await;
    subject.interrupt().await;
    // The remaining cost of the expired generation is captured the next day.
    let store = subject.store();
    let tomorrow = START.plus(Duration::from_hours(24));
    store.execute(account, vec![capture(first, generation(3), 45)], tomorrow).await.unwrap();
    expire_all(store, account, second, &[6], tomorrow).await;
    // If generations expire on one day and their charges are returned on the next, the next day's charge is negative.
    let later = tomorrow.plus(Duration::from_hours(24));
    store.execute(account, vec![capture(second, generation(6), 1)], later).await.unwrap();

    let days = Day::of(START)..=Day::of(later);
    let lines = store.usage(account, days.clone(), None).await.unwrap();
    let lines: Vec<_> =
        lines.iter().map(|l| (l.day, l.payer.key, l.payer.model.as_str(), l.counts.of)).collect();
    let counts = |requests, (prompt, cached, completion), charged| Counts {
        requests,
        usage: Usage::of(prompt, cached, completion),
        charged: nanos(charged),
        ..Counts::default()
    };
    let expected = [
        (*days.start(), first, "Model Flash", counts(3, (12, 4, 55), 55)),
        (*days.start(), first, "Model Max", counts(1, (1, 0, 10), 10)),
        (*days.start(), second, "Model Flash", counts(1, (1, 0, 1), 1)),
        (Day::of(tomorrow), first, "Model Flash", counts(0, (0, 0, 5), 5)),
        (Day::of(tomorrow), second, "Model Flash", counts(1, (10, 4, 9), 9)),
        (Day::of(later), second, "Model Flash", counts(0, (0, 0, 0), -8)),
    ];
    assert_eq!(lines, expected);
    assert_eq!(store.usage(account, days.clone(), Some(&[second])).await.unwrap().len(), 3);
    assert_eq!(store.usage(account, *days.end()..=*days.end(), None).await.unwrap().len(), 1);
    assert_eq!(store.usage(account, *days.end()..=*days.end(), Some(&[first])).await.unwrap(), []);
    let none = OtherSums::default();
    let spend = store.account_days(account, days.clone(), none).await.unwrap();
    let spend: Vec<_> = spend
        .iter()
        .flat_map(|of| of.models.iter().map(|(model, total)| (of.day, model.as_str(), total.of.sums)))
        .collect();
    let sums = |requests, tokens, charged| Sums { requests, tokens, charged: nanos(charged) };
    let expected = [
        (*days.start(), "Model Flash", sums(4, 69, 56)),
        (*days.start(), "Model Max", sums(1, 11, 10)),
        (Day::of(tomorrow), "Model Flash", sums(1, 24, 14)),
        (Day::of(later), "Model Flash", sums(0, 0, -8)),
    ];
    assert_eq!(spend, expected);
}

pub(crate) async fn books_are_sound_at_every_moment(subject: &mut impl Subject) {
    let account = open_account_with(subject.store(), 1, 1_000_000).await;
    for n in 0..4 {
        make_key(subject.store(), account, n, None).await;
    }
    let spenders: Vec<_> = (0..4_u8)
        .map(|n| {
            let (store, key) = (Arc::clone(subject.store()), key(n));
            tokio::spawn(async move {
                for turn in 0..TURNS {
                    let one = |i: u8| GenerationId::new(after(turn), [n, i, 0, 0, 0, 0, 0, 0, 0, 0]);
                    let held = (0..9).map(|i| hold(key, one(i), 10, 7));
                    store.execute(account, held.collect(), START).await.unwrap();
                    let captured = (0..8).map(|i| capture(key, one(i), 10 + i64::from(i)));
                    store.execute(account, captured.collect(), START).await.unwrap();
                }
            })
        })
        .collect();
    while !spenders.iter().all(tokio::task::JoinHandle::is_finished) {
        let audit = subject.store().audit(account).await.unwrap().unwrap();
        assert_eq!((audit.keys, audit.wrong), (4, Vec::new()));
    }
    for spender in spenders {
        spender.await.unwrap();
    }
    subject.interrupt().await;
    let audit = subject.store().audit(account).await.unwrap().unwrap();
    assert_eq!(audit, Audit { entries: 4 * 8 * TURNS, keys: 4, groups: 0, wrong: Vec::new() });
}

pub(crate) async fn doctored_books_are_found(subject: &mut impl Subject) {
    let wrong = |figure, recorded, proven| Wrong {
        figure,
        recorded: Quantity::Usd(nanos(recorded)),
        proven: Quantity::Usd(nanos(proven)),
    };
    let (mine, lost, held) = (key(1), generation(1), generation(2));
    let of_mine = BudgetOwner::Key(mine);
    let cases = [
        (Fault::Used(mine), vec![wrong(Figure::Used(of_mine), 101, 100)]),
        (Fault::Credit, vec![wrong(Figure::Credit, 901, 900)]),
        (
            Fault::LostEntry(lost),
            vec![wrong(Figure::Used(of_mine), 100, 0), wrong(Figure::Credit, 900, 1_000)],
        ),
        (
            Fault::PhantomHold(generation(3), held),
            vec![wrong(Figure::BudgetHeld(of_mine), 50, 100), wrong(Figure::Held, 50, 100)],
        ),
    ];
    for (n, (fault, expected)) in (1..).zip(cases) {
        let store = subject.store();
        let account = open_account_with(store, n, 1_000).await;
        make_key(store, account, 1, None).await;
        make_key(store, account, 2, None).await;
        let commands = vec![hold(mine, lost, 100, 7), capture(mine, lost, 100), hold(mine, held, 50, 7)];
        store.execute(account, commands, START).await.unwrap();
        assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, [], "{fault:?}");
        subject.doctor(account, fault).await;
        let mut found = subject.store().audit(account).await.unwrap().unwrap().wrong;
        // Leaves out index entries that the fault contradicts.
        found.retain(|wrong| !matches!(wrong.figure, Figure::Stored(_)));
        assert_eq!(found, expected, "{fault:?}");
    }
    assert_eq!(subject.store().audit(account(9)).await.unwrap(), None);
}

pub(crate) async fn the_latest_entries_come_newest_first(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let key = make_key(store, account, 1, None).await;
    assert_eq!(store.latest_entries(account, None, 5).await.unwrap(), []);
    let at_once = |numbers: std::ops::RangeInclusive<u8>| -> Vec<Command> {
        let (held, captured) = (numbers.clone(), numbers);
        let held = held.map(|n| hold(key, generation(n), 10, 7));
        held.chain(captured.map(|n| capture(key, generation(n), 10))).collect()
    };
    store.execute(account, at_once(1..=4), START).await.unwrap();
    store.execute(account, at_once(5..=7), START).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let mut backwards = store.journal(account, 0, 100).await.unwrap().entries;
    backwards.reverse();
    assert_eq!(store.latest_entries(account, None, 100).await.unwrap(), backwards);
    assert_eq!(store.latest_entries(account, Some(7), 2).await.unwrap(), backwards[1..3]);
    assert_eq!(store.latest_entries(account, Some(3), 100).await.unwrap(), backwards[5..]);
    assert_eq!(store.latest_entries(account, Some(1), 100).await.unwrap(), []);
}

pub(crate) async fn entries_are_found_by_key_model_day_and_outcome(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 100_000).await;
    let (often, seldom) = (make_key(store, account, 1, None).await, make_key(store, account, 2, None).await);
    // There are three days with sixty entries each. The second key has the first and the last entry.
    let days = [0, 1, 2].map(|n| START.plus(Duration::from_hours(24 * n)));
    for (day, numbers) in days.into_iter().zip([0..60_u8, 60..120, 120..180]) {
        let key = |n: u8| if n.is_multiple_of(60) || n % 60 == 59 { seldom } else { often };
        let held = numbers.clone().map(|n| hold(key(n), generation(n), 10, 7));
        let commands =
            held.chain(numbers.map(|n| capture(key(n), generation(n), if n == 130 { 200_000 } else { 10 })));
        store.execute(account, commands.collect(), day).await.unwrap();
    }
    subject.interrupt().await;
    let store = subject.store();
    let search = EntrySearch::default();
    let numbers = async |search: &EntrySearch, before, limit| {
        let found = store.find_entries(account, search.clone(), before, limit).await.unwrap();
        (found.found.iter().map(|entry| entry.number).collect::<Vec<_>>(), found.next)
    };
    assert_eq!(numbers(&search, None, 2).await, (vec![180, 179], Some(179)));
    assert_eq!(numbers(&search, Some(3), 9).await, (vec![2, 1], None));
    let of_key = EntrySearch { key: Some(seldom), ..search.clone() };
    assert_eq!(numbers(&of_key, None, 3).await, (vec![180, 121, 120], Some(120)));
    assert_eq!(numbers(&of_key, Some(120), 3).await, (vec![61, 60, 1], None));
    let on = |day: Day| {
        let [begins, ends] = [day, day.plus(1)].map(|day| Some(Timestamp::from_millis(day.millis().0)));
        EntrySearch { begins, ends, ..search.clone() }
    };
    let of_day = on(Day::of(days[1]));
    assert_eq!(numbers(&of_day, None, 100).await, ((61..=120).rev().collect(), None));
    assert_eq!(numbers(&of_day, Some(63), 100).await, (vec![62, 61], None));
    let both = EntrySearch { key: Some(seldom), ..of_day };
    assert_eq!(numbers(&both, None, 9).await, (vec![120, 61], None));
    // The range begins one millisecond after the first day's entries and ends before the second day's entries.
    let between = EntrySearch {
        begins: Some(days[0].plus(Duration::from_millis(1))),
        ends: Some(days[1]),
        ..search.clone()
    };
    assert_eq!(numbers(&between, None, 9).await, (vec![], None));
    let to_the_second = EntrySearch { ends: Some(days[1].plus(Duration::from_millis(1))), ..between };
    assert_eq!(numbers(&to_the_second, None, 1).await, (vec![120], Some(120)));
    let other_day = on(Day::of(days[2]).plus(1));
    assert_eq!(numbers(&other_day, None, 9).await, (vec![], None));
    let short = EntrySearch { outcome: Some(Wanted::Shortfall), ..search.clone() };
    assert_eq!(numbers(&short, None, 9).await, (vec![131], None));
    let exact = EntrySearch { outcome: Some(Wanted::Captured), ..search.clone() };
    assert_eq!(numbers(&exact, None, 1).await, (vec![180], Some(180)));
    for none in [
        EntrySearch { model: Some("Model Max".into()), ..search.clone() },
        EntrySearch { group: Some(histories::group(1)), ..search.clone() },
        EntrySearch { outcome: Some(Wanted::Expired), ..search.clone() },
        EntrySearch { outcome: Some(Wanted::Estimated), ..search.clone() },
    ] {
        assert_eq!(numbers(&none, None, 9).await, (vec![], None), "{none:?}");
    }
}

/// Makes the account look as if it was written by a program that does not order entries by time.
async fn forget_the_order(store: &Store, account: AccountId) {
    let space = names::space(account);
    let mut money = store.read().get::<AccountRecord>(&space, names::account()).await.unwrap().unwrap();
    (money.money.billed_at, money.ordered_since) = (None, None);
    let mut revision = [0; 8];
    System.random(&mut revision);
    let writes = vec![Write::Put(names::account().into(), Record::of(Revision(revision), FORM, &money))];
    store.records.commit(&space, Commit { guards: Vec::new(), writes }).await.unwrap();
}

pub(crate) async fn lists_by_time_have_each_bill_once_whatever_clocks_do(subject: &mut impl Subject) {
    let edge = Timestamp::from_millis(Day::of(START).plus(1).millis().0);
    for (n, is_of_earlier_program) in [(1, false), (2, true)] {
        let store = subject.store();
        let account = open_account_with(store, n, 100_000).await;
        let key = make_key(store, account, 1, None).await;
        // Two key-services pass midnight, one a second after the other. Later both clocks go back by an hour.
        for n in 0..200_u8 {
            let behind = Duration::from_secs(u64::from(n % 2));
            let now = edge.minus(Duration::from_secs(10)).plus(Duration::from_millis(100) * n.into());
            let now = if n < 190 { now.minus(behind) } else { now.minus(Duration::from_hours(1)) };
            if is_of_earlier_program {
                forget_the_order(store, account).await;
            }
            let commands = vec![hold(key, generation(n), 10, 7), capture(key, generation(n), 10)];
            store.execute(account, commands, now).await.unwrap();
        }
        subject.interrupt().await;
        let store = subject.store();
        let found = async |search: EntrySearch| {
            let (mut numbers, mut before) = (Vec::new(), None);
            loop {
                let page = store.find_entries(account, search.clone(), before, 30).await.unwrap();
                numbers.extend(page.found.iter().map(|entry| entry.number));
                before = page.next;
                if before.is_none() {
                    return numbers;
                }
            }
        };
        let all = EntrySearch::default();
        for of in [all.clone(), EntrySearch { key: Some(key), ..all.clone() }] {
            let before = found(EntrySearch { ends: Some(edge), ..of.clone() }).await;
            let after = found(EntrySearch { begins: Some(edge), ..of.clone() }).await;
            let days = [&before, &after].map(|numbers| numbers.len() as u64);
            let mut union = [before, after].concat();
            union.sort_unstable();
            assert!(union.iter().copied().eq(1..=200), "{is_of_earlier_program} {union:?}");
            for (of_day, day) in days.into_iter().zip([Day::of(START), Day::of(edge)]) {
                let lines = store.usage(account, day..=day, None).await.unwrap();
                assert_eq!(lines.iter().map(|line| line.counts.of.requests).sum::<u64>(), of_day);
            }
        }
        for n in 0..200 {
            let bill = store.entry_of(account, generation(n)).await.unwrap();
            assert_eq!(bill.map(|bill| bill.generation), Some(generation(n)), "{is_of_earlier_program}");
        }
        assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
    }
}

/// Bills a generation of the key for each number.
async fn bill(store: &Store, key: KeyId, numbers: std::ops::Range<u32>) {
    let numbers: Vec<u32> = numbers.collect();
    for some in numbers.chunks(40) {
        let commands = some.iter().flat_map(|n| {
            let [a, b, c, d] = n.to_be_bytes();
            let id = GenerationId::new(START, [a, b, c, d, 0, 0, 0, 0, 0, 0]);
            [hold(key, id, 10, 7), capture(key, id, 10)]
        });
        let outcomes = store.execute(account(1), commands.collect(), START).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
}

pub(crate) async fn entries_of_a_key_and_of_a_group_are_found_behind_any_number_of_others(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000_000).await;
    let (child, parent) = (histories::group(1), histories::group(0));
    for n in [0, 1] {
        let mut new = new_group(account, n);
        new.group.spend.parent = (n == 1).then_some(parent);
        store.create_group(new, None, &act(START)).await.unwrap();
    }
    let often = make_key(store, account, 1, None).await;
    let mut new = new_key(account, 2);
    let seldom = new.key.id;
    new.key.spend.group = Some(child);
    store.create_key(new, None, &act(START)).await.unwrap();
    // Between the first two are more entries than a page reads.
    for (key, numbers) in [(seldom, 1..2), (often, 2..2_502), (seldom, 2_502..2_504), (often, 2_504..2_564)] {
        bill(store, key, numbers).await;
    }
    subject.interrupt().await;
    let store = subject.store();
    let search = EntrySearch::default();
    for search in [
        EntrySearch { key: Some(seldom), ..search.clone() },
        EntrySearch { group: Some(child), ..search.clone() },
        EntrySearch { group: Some(parent), ..search.clone() },
        EntrySearch { within: Some(parent), ..search.clone() },
        EntrySearch { key: Some(seldom), within: Some(child), ..search.clone() },
    ] {
        for limit in [1, 2, 3, 9] {
            let (mut numbers, mut before, mut pages) = (Vec::new(), None, 0);
            loop {
                let found = store.find_entries(account, search.clone(), before, limit).await.unwrap();
                numbers.extend(found.found.iter().map(|entry| entry.number));
                (before, pages) = (found.next, pages + 1);
                if before.is_none() {
                    break;
                }
            }
            assert_eq!(numbers, [2_503, 2_502, 1], "{search:?} {limit}");
            assert_eq!(pages, 3_usize.div_ceil(limit), "{search:?} {limit}");
        }
        let other = EntrySearch { model: Some("Model Max".into()), ..search.clone() };
        let found = store.find_entries(account, other, None, 9).await.unwrap();
        assert_eq!((found.found, found.next), (Vec::new(), None));
    }
    let audit = store.audit(account).await.unwrap().unwrap();
    assert_eq!(audit, Audit { entries: 2_563, keys: 2, groups: 2, wrong: Vec::new() });
}

pub(crate) async fn refused_calls_are_counted_by_key_hour_and_reason(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let other = open_account_with(store, 2, 1_000).await;
    let [first, second] = [make_key(store, account, 1, None).await, make_key(store, account, 2, None).await];
    let now = Hour::of(START);
    let line = |key, hours, reason, count| RefusedLine { key, hour: Hour(now.0 + hours), reason, count };
    let lines = vec![
        line(first, 0, "key_limit_reached", 400),
        line(first, 0, "rate_limit_exceeded", 2),
        line(second, 0, "key_limit_reached", 10),
        line(second, 30, "key_expired", 7),
    ];
    store.add_refused(account, lines).await.unwrap();
    store.add_refused(account, vec![line(first, 0, "key_limit_reached", 2)]).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let counts = async |account, hours: (i64, i64), key| {
        let found = store.refused(account, Hour(now.0 + hours.0)..=Hour(now.0 + hours.1), key).await.unwrap();
        found.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect::<Vec<_>>()
    };
    assert_eq!(counts(account, (0, 0), None).await, ["412 key_limit_reached", "2 rate_limit_exceeded"]);
    assert_eq!(counts(account, (0, 0), Some(second)).await, ["10 key_limit_reached"]);
    assert_eq!(counts(account, (1, 30), None).await, ["7 key_expired"]);
    assert_eq!(counts(account, (-5, -1), None).await, [""; 0]);
    assert_eq!(counts(other, (0, 30), None).await, [""; 0]);
    let keys = async |account, days, limit| {
        store.refused_keys(account, Day::of(START).plus(days), limit).await.unwrap()
    };
    assert_eq!(keys(account, 0, 9).await, [(first, 404), (second, 10)]);
    assert_eq!(keys(account, 0, 1).await, [(first, 404)]);
    assert_eq!(keys(account, 1, 9).await, [(second, 7)]);
    assert_eq!(keys(other, 0, 9).await, []);
}
