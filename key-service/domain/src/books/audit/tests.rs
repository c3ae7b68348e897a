//! Tests audits of small books.

use super::*;
use std::time::Duration;

use crate::ledger::{
    Bounds, Budget, Window,
    histories::{START, group, key},
};

fn nanos(n: i64) -> NanoUsd {
    NanoUsd::from_nanos(n)
}

fn of_key(id: u8) -> BudgetOwner {
    BudgetOwner::Key(key(id))
}

fn of_group(id: u8) -> BudgetOwner {
    BudgetOwner::Group(group(id))
}

fn spent(used: i64, held: i64) -> Budget {
    Budget { used: nanos(used), held: nanos(held), ..Budget::default() }
}

/// Returns a journal entry of a key that is in no group.
fn entry(number: u64, id: u8, delta: i64, used_after: i64) -> AuditedEntry {
    let (key, delta, used_after) = (key(id), nanos(delta), nanos(used_after));
    AuditedEntry { number, key, groups: [None, None], at: START, delta, used_after }
}

/// Audits an account with two keys and deposits of 100. The first key was charged 5 and 2, and holds 9. The second key
/// was charged 8 and got 5 back.
fn audit(first: &Budget, second: &Budget, account: Account) -> Audit {
    let mut auditor = Auditor::new(true);
    for (number, id, delta, used_after) in [(1, 1, 5, 5), (2, 2, 8, 8), (3, 1, 2, 7), (4, 2, -5, 3)] {
        auditor.entry(entry(number, id, delta, used_after));
    }
    auditor.budget(of_key(1), first, nanos(0), nanos(9));
    auditor.budget(of_key(2), second, nanos(0), nanos(0));
    auditor.account(account, nanos(9), [nanos(60), nanos(40)].into_iter())
}

const SOUND: Account = Account {
    credit: NanoUsd::from_nanos(90),
    held: NanoUsd::from_nanos(9),
    tick: 4,
    last_deposit: None,
    billed_at: None,
    standing: None,
};

fn wrong(figure: Figure, recorded: i64, proven: i64) -> Wrong {
    Wrong { figure, recorded: Quantity::Usd(nanos(recorded)), proven: Quantity::Usd(nanos(proven)) }
}

#[test]
fn books_that_add_up_are_sound() {
    let sound = Audit { entries: 4, keys: 2, groups: 0, wrong: Vec::new() };
    assert_eq!(audit(&spent(7, 9), &spent(3, 0), SOUND), sound);
}

#[test]
fn a_wrong_figure_is_named_with_its_proven_value() {
    let found = audit(&spent(8, 9), &spent(3, 1), SOUND).wrong;
    assert_eq!(found, [wrong(Figure::Used(of_key(1)), 8, 7), wrong(Figure::BudgetHeld(of_key(2)), 1, 0)]);
    let account = Account { credit: nanos(91), held: nanos(0), tick: 4, ..Account::default() };
    let found = audit(&spent(7, 9), &spent(3, 0), account).wrong;
    assert_eq!(found, [wrong(Figure::Held, 0, 9), wrong(Figure::Credit, 91, 90)]);
}

#[test]
fn a_missing_entry_breaks_the_chain_of_balances() {
    let mut auditor = Auditor::new(true);
    auditor.entry(entry(1, 1, 5, 5));
    auditor.entry(entry(3, 1, 2, 10));
    auditor.budget(of_key(1), &spent(10, 0), nanos(0), nanos(0));
    let account = Account { credit: nanos(90), ..Account::default() };
    let found = auditor.account(account, nanos(0), [nanos(100)].into_iter()).wrong;
    assert_eq!(found, [wrong(Figure::Entry(key(1), 3), 10, 7)]);
}

#[test]
fn a_journal_without_its_beginning_proves_the_rest() {
    let books = |complete| {
        let mut auditor = Auditor::new(complete);
        auditor.entry(entry(8, 1, 5, 25));
        auditor.budget(of_key(1), &spent(25, 0), nanos(0), nanos(0));
        auditor.budget(of_key(2), &spent(30, 0), nanos(0), nanos(0));
        let account = Account { credit: nanos(45), ..Account::default() };
        auditor.account(account, nanos(0), [nanos(100)].into_iter()).wrong
    };
    assert_eq!(books(false), []);
    let unproven = [
        wrong(Figure::Entry(key(1), 8), 25, 5),
        wrong(Figure::Used(of_key(2)), 30, 0),
        wrong(Figure::Credit, 45, 75),
    ];
    assert_eq!(books(true), unproven);
}

#[test]
fn entries_of_a_key_that_does_not_exist_are_found() {
    let mut auditor = Auditor::new(true);
    auditor.entry(entry(1, 1, 4, 4));
    assert_eq!(auditor.unknown().collect::<Vec<_>>(), [of_key(1)]);
    let account = Account { credit: nanos(6), ..Account::default() };
    let found = auditor.account(account, nanos(0), [nanos(10)].into_iter()).wrong;
    assert_eq!(found, [wrong(Figure::Used(of_key(1)), 0, 4)]);
}

/// Returns the budget of a group with this daily window. `used` and `held` are the group's totals.
fn shared(used: i64, held: i64, window: Window) -> Budget {
    let bounds = Some(Box::new(Bounds { windows: vec![window], ..Bounds::default() }));
    Budget { used: nanos(used), held: nanos(held), bounds, limit: None }
}

/// Returns the window for the day on which all histories start.
fn day(used: i64) -> Window {
    let start = Per::Day.beginning(START);
    Window { per: Per::Day, amount: nanos(1_000), raised: None, start, used: nanos(used) }
}

/// Passes four entries of group 1, whose parent is group 0: 10 on the day before, then 10, 10 and a refund of 4 on the
/// day itself.
fn of_groups(complete: bool) -> Auditor {
    let mut auditor = Auditor::new(complete);
    let hour = Duration::from_hours(1);
    let times = [START.minus(24 * hour), START, START.plus(hour), START.plus(2 * hour)];
    for (number, (at, delta)) in (1..).zip(times.into_iter().zip([10, 10, 10, -4])) {
        let used_after = [10, 20, 30, 26][usize::try_from(number).unwrap() - 1];
        let groups = [Some(group(1)), Some(group(0))];
        auditor.entry(AuditedEntry { groups, at, ..entry(number, 1, delta, used_after) });
    }
    auditor.budget(of_key(1), &spent(26, 0), nanos(0), nanos(0));
    auditor
}

/// Returns what the audit finds wrong with group 1. The records of its parent are right.
fn wrong_in(group_1: &Budget, holds: i64) -> Vec<Wrong> {
    let mut auditor = of_groups(true);
    auditor.budget(of_group(1), group_1, nanos(0), nanos(holds));
    auditor.budget(of_group(0), &shared(26, 0, day(20)), nanos(0), nanos(0));
    let account = Account { credit: nanos(74), ..Account::default() };
    let audit = auditor.account(account, nanos(0), [nanos(100)].into_iter());
    assert_eq!((audit.keys, audit.groups), (1, 2));
    audit.wrong
}

#[test]
fn what_a_group_used_and_holds_is_the_sum_of_its_entries_and_holds() {
    assert_eq!(wrong_in(&shared(26, 7, day(20)), 7), []);
    let found = wrong_in(&shared(27, 7, day(20)), 8);
    assert_eq!(
        found,
        [wrong(Figure::Used(of_group(1)), 27, 26), wrong(Figure::BudgetHeld(of_group(1)), 7, 8)]
    );
}

#[test]
fn a_window_used_what_its_entries_add_up_to() {
    // The entries do not show on which day the returned money had been billed.
    for sound in [20, 18, 16] {
        assert_eq!(wrong_in(&shared(26, 0, day(sound)), 0), [], "{sound}");
    }
    let figure = || Figure::Window(of_group(1), Per::Day);
    assert_eq!(wrong_in(&shared(26, 0, day(21)), 0), [wrong(figure(), 21, 20)]);
    assert_eq!(wrong_in(&shared(26, 0, day(15)), 0), [wrong(figure(), 15, 16)]);
    // The recorded window is still yesterday's.
    let yesterday = Window { start: Per::Day.beginning(START.minus(Duration::from_hours(24))), ..day(30) };
    assert_eq!(wrong_in(&shared(26, 0, yesterday), 0), [wrong(figure(), 30, 20)]);
    // A bound that is set in the middle of the day counts only later bills.
    let later = Window { start: START.plus(Duration::from_mins(1)), ..day(6) };
    assert_eq!(wrong_in(&shared(26, 0, later), 0), []);
}

/// Returns what the audit finds wrong with this window of a key that was charged 10 at each of these times.
fn wrong_after(times: &[Timestamp], window: Window) -> Vec<Wrong> {
    let mut auditor = Auditor::new(true);
    let mut used = 0;
    for (number, at) in (1..).zip(times) {
        used += 10;
        auditor.entry(AuditedEntry { at: *at, ..entry(number, 1, 10, used) });
    }
    auditor.budget(of_key(1), &shared(used, 0, window), nanos(0), nanos(0));
    let account = Account { credit: nanos(900 - used), ..Account::default() };
    auditor.account(account, nanos(0), [nanos(900)].into_iter()).wrong
}

#[test]
fn windows_that_a_clock_days_ahead_began_count_what_is_billed_until_then() {
    let days = |days: u32| START.plus(Duration::from_hours(24) * days);
    let far = |used| Window { start: Per::Day.beginning(days(5)), ..day(used) };
    let times = [START, days(5), START, START];
    assert_eq!(wrong_after(&times, far(30)), []);
    // The clock was ahead only while a hold was opened, so no bill has its time.
    assert_eq!(wrong_after(&[START, START], far(10)), []);
    assert_eq!(wrong_after(&[START, START], far(30)).len(), 1);
    // Once real time reaches that day, the first bill has the time of the window's beginning.
    let reached = [&times[..], &[Per::Day.beginning(days(5)), days(5)]].concat();
    assert_eq!(wrong_after(&reached, far(50)), []);
    // This window's bound was set after the clock went back.
    assert_eq!(wrong_after(&times, day(20)), []);
    assert_eq!(
        wrong_after(
            &[&reached[..], &[days(6), days(7)]].concat(),
            Window { start: Per::Day.beginning(days(7)), ..day(11) }
        )
        .len(),
        1
    );
}

#[test]
fn a_window_of_a_key_without_entries_used_nothing() {
    let mut auditor = Auditor::new(true);
    auditor.budget(of_key(1), &shared(0, 0, day(1)), nanos(0), nanos(0));
    let found = auditor.account(Account::default(), nanos(0), [].into_iter()).wrong;
    assert_eq!(found, [wrong(Figure::Window(of_key(1), Per::Day), 1, 0)]);
}

#[test]
fn a_journal_without_its_beginning_proves_nothing_of_groups_but_what_they_must_have_used() {
    let wrong_in = |group_1: &Budget| {
        let mut auditor = of_groups(false);
        auditor.budget(of_group(1), group_1, nanos(0), nanos(0));
        auditor.budget(of_group(0), &shared(500, 0, day(20)), nanos(0), nanos(0));
        auditor
            .account(Account { credit: nanos(74), ..Account::default() }, nanos(0), [nanos(100)].into_iter())
            .wrong
    };
    assert_eq!(wrong_in(&shared(400, 0, day(25))), []);
    let figure = Figure::Window(of_group(1), Per::Day);
    assert_eq!(wrong_in(&shared(400, 0, day(3))), [wrong(figure, 3, 16)]);
}

#[test]
fn entries_of_a_group_that_does_not_exist_are_found() {
    let mut auditor = of_groups(true);
    auditor.budget(of_group(0), &shared(26, 0, day(20)), nanos(0), nanos(0));
    assert_eq!(auditor.unknown().collect::<Vec<_>>(), [of_group(1)]);
    let account = Account { credit: nanos(74), ..Account::default() };
    let found = auditor.account(account, nanos(0), [nanos(100)].into_iter()).wrong;
    assert_eq!(found, [wrong(Figure::Used(of_group(1)), 0, 26)]);
}

#[test]
fn a_balance_that_an_import_brought_is_proven_from_the_first_entry_on() {
    let books = |opening, complete| {
        let mut auditor = Auditor::new(complete);
        let paid = AuditedEntry { groups: [Some(group(1)), None], ..entry(1, 1, 5, 35) };
        auditor.entry(paid);
        auditor.budget(of_group(1), &spent(25, 0), nanos(20), nanos(0));
        auditor.budget(of_key(1), &spent(35, 0), nanos(opening), nanos(0));
        auditor.budget(of_key(2), &spent(40, 0), nanos(40), nanos(0));
        let account = Account { credit: nanos(95), ..Account::default() };
        auditor.account(account, nanos(0), [nanos(100)].into_iter()).wrong
    };
    assert_eq!((books(30, true), books(30, false)), (Vec::new(), Vec::new()));
    let unproven = [wrong(Figure::Entry(key(1), 1), 35, 34), wrong(Figure::Credit, 95, 94)];
    assert_eq!(books(29, true), unproven);
}

#[test]
fn an_imported_key_that_spent_nothing_here_has_its_opening_balance() {
    let mut auditor = Auditor::new(true);
    auditor.budget(of_key(1), &spent(8, 0), nanos(7), nanos(0));
    auditor.budget(of_group(1), &spent(8, 0), nanos(9), nanos(0));
    let found = auditor.account(Account::default(), nanos(0), std::iter::empty()).wrong;
    assert_eq!(found, [wrong(Figure::Used(of_key(1)), 8, 7), wrong(Figure::Used(of_group(1)), 8, 9)]);
}

#[test]
fn figures_of_other_moments_are_compared_with_the_entries_up_to_theirs() {
    // The account has paid two entries. The first key's balance was read before both, the second key's balance after
    // the third entry.
    let books = |second_used, credit| {
        let mut auditor = Auditor::new(true).paid(2);
        auditor.budget(of_key(1), &spent(0, 0), nanos(0), nanos(0));
        auditor.entry(entry(1, 1, 5, 5));
        auditor.entry(entry(2, 2, 8, 8));
        auditor.entry(entry(3, 2, 1, 9));
        auditor.budget(of_key(2), &spent(second_used, 0), nanos(0), nanos(0));
        auditor.entry(entry(4, 2, 2, 11));
        auditor.begins(1);
        let account = Account { credit: nanos(credit), ..Account::default() };
        auditor.account(account, nanos(0), [nanos(100)].into_iter()).wrong
    };
    assert_eq!(books(9, 87), []);
    assert_eq!(books(11, 87), [wrong(Figure::Used(of_key(2)), 11, 9)]);
    assert_eq!(books(9, 84), [wrong(Figure::Credit, 84, 87)]);
}

#[test]
fn a_generation_that_is_billed_twice_and_a_number_that_is_missing_are_found() {
    use crate::ledger::{Ending, histories::generation};
    let bill = |ending, charged, delta| {
        let settlement = Settlement {
            payer: Payer::alone(key(1), "Model Flash".into()),
            origin: None,
            usage: shared::tokens::Usage::of(1, 0, 1),
            cost: nanos(charged),
            upstream_cost: None,
            charged: nanos(charged),
            ending,
            estimated: false,
            at: START,
            course: None,
        };
        Entry { settlement, delta: nanos(delta), used_after: nanos(0) }
    };
    let found = |first: Entry, second: Entry| {
        let mut auditor = Auditor::new(true).paid(3);
        auditor.bill(generation(1), &first);
        auditor.bill(generation(1), &second);
        auditor.entry(entry(1, 1, 5, 5));
        auditor.entry(entry(3, 1, 0, 5));
        auditor.begins(1);
        auditor.budget(of_key(1), &spent(5, 0), nanos(0), nanos(0));
        let account = Account { credit: nanos(95), ..Account::default() };
        auditor.account(account, nanos(0), [nanos(100)].into_iter()).wrong
    };
    let (recorded, proven) = (Quantity::Count(3), Quantity::Count(2));
    let missing = Wrong { figure: Figure::Entries, recorded, proven };
    let late = bill(Ending::Captured, 7, 2);
    assert_eq!(found(bill(Ending::Expired, 5, 5), late.clone()), std::slice::from_ref(&missing));
    let twice = wrong(Figure::Bill(generation(1)), 7, 12);
    assert_eq!(found(bill(Ending::Captured, 5, 5), bill(Ending::Captured, 7, 7)), [twice, missing]);
}
