//! Tests calendar windows, whose spend renews.

use shared::{calendar::Per, wire::Limit};

use super::*;

/// Noon on a Friday.
const NOON: &str = "2026-11-20T12:00Z";
const MIDNIGHT: &str = "2026-11-21T00:00Z";

/// Error of a slightly wrong clock.
const STEP: Duration = Duration::from_secs(40);

fn time(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn windows(windows: &[(Per, i64)]) -> BoundsPatch {
    let windows = windows.iter().map(|(per, amount)| Limit::new(nanos(*amount), *per)).collect();
    BoundsPatch { windows: Some(windows), ..BoundsPatch::default() }
}

/// Returns a ledger at noon whose key has these windows.
fn book(bounds: &[(Per, i64)]) -> Book {
    let mut book = Book::new(100_000, None);
    book.now = time(NOON);
    book.bound(&windows(bounds));
    book
}

fn reached(resets_at: &str) -> Result<Outcome, Refused> {
    Err(Refused::LimitReached { level: Level::Key, resets_at: Some(time(resets_at)) })
}

impl Book {
    fn at(&mut self, text: &str) -> &mut Self {
        self.now = time(text);
        self
    }

    /// Holds and captures an amount in one step.
    fn spend(&mut self, n: u8, amount: i64) {
        self.must_hold(n, amount);
        assert_eq!(self.capture(n, cost(amount)).charged, nanos(amount));
    }

    /// Returns the amounts used in the key's windows.
    fn used(&mut self) -> Vec<i64> {
        let now = self.now;
        self.bounds().windows.iter().map(|window| window.at(now).used.nanos()).collect()
    }
}

#[test]
fn a_late_capture_gives_back_to_the_window_that_a_clock_ahead_began() {
    let mut book = book(&[(Per::Day, 100)]);
    // The clock of another key-service is briefly thirteen hours ahead.
    book.at("2026-11-21T01:00Z").must_hold(2, 10);
    book.at(NOON).must_hold(1, 50);
    book.extend(1, 50, cost(40)).unwrap();
    book.tick(3);
    let Ok(Outcome::Expired(bill)) = book.expire(1) else { panic!("it is due") };
    assert_eq!((bill.at, book.used()), (time(MIDNIGHT), vec![40]));
    book.capture(1, cost(15));
    assert_eq!(book.used(), [15]);
}

#[test]
fn a_window_that_is_used_up_renews_at_its_end() {
    let mut book = book(&[(Per::Day, 100)]);
    book.spend(1, 70);
    assert_eq!(book.hold(2, 31, 31, 31), reached(MIDNIGHT));
    book.spend(2, 30);
    assert_eq!(book.check(), reached(MIDNIGHT));
    assert_eq!(book.at("2026-11-20T23:59:59.999Z").check(), reached(MIDNIGHT));
    assert_eq!(book.at(MIDNIGHT).check(), Ok(Outcome::Allowed { models: None }));
    book.spend(3, 100);
    assert_eq!(book.check(), reached("2026-11-22T00:00Z"));
    assert_eq!(book.sums(), (100_000 - 200, 0, 200));
}

#[test]
fn each_length_of_window_turns_at_its_own_time() {
    let all = [(Per::Hour, 1_000), (Per::Day, 1_000), (Per::Week, 1_000), (Per::Month, 1_000)];
    let mut book = book(&all);
    let steps: [(&str, [i64; 4]); 8] = [
        ("2026-11-20T12:59:59.999Z", [1, 1, 1, 1]),
        ("2026-11-20T13:00Z", [1, 2, 2, 2]),
        (MIDNIGHT, [1, 1, 3, 3]),
        ("2026-11-22T23:59:59.999Z", [1, 1, 4, 4]),
        // This is a Monday.
        ("2026-11-23T00:00Z", [1, 1, 1, 5]),
        ("2026-11-30T23:59:59.999Z", [1, 1, 1, 6]),
        ("2026-12-01T00:00Z", [1, 1, 2, 1]),
        ("2027-11-30T00:00Z", [1, 1, 1, 1]),
    ];
    for (n, (at, used)) in (1..).zip(steps) {
        book.at(at).spend(n, 1);
        assert_eq!(book.used(), used, "{at}");
    }
}

#[test]
fn a_hold_is_billed_in_the_window_in_which_it_is_captured() {
    let mut book = book(&[(Per::Day, 100)]);
    book.must_hold(1, 60);
    book.spend(2, 40);
    book.at(MIDNIGHT).capture(1, cost(50));
    assert_eq!(book.used(), [50]);
}

#[test]
fn a_hold_of_an_earlier_window_is_held_against_the_window_that_runs() {
    let mut book = book(&[(Per::Hour, 100)]);
    book.must_hold(1, 60);
    book.at("2026-11-20T13:00Z");
    assert_eq!(book.hold(2, 1, 41, 41), Err(Refused::Reserved));
    book.spend(2, 40);
    // The hold still fits into the current window.
    assert_eq!(book.capture(1, cost(60)).charged, nanos(60));
    assert_eq!(book.used(), [100]);
}

#[test]
fn a_cost_beyond_its_hold_is_billed_as_far_as_the_window_allows() {
    let mut book = book(&[(Per::Day, 100)]);
    book.must_hold(1, 60);
    book.must_hold(2, 30);
    let settlement = book.capture(1, cost(500));
    assert_eq!((settlement.charged, settlement.shortfall()), (nanos(70), nanos(430)));
    // The same applies to a capture without a hold, and to an extension.
    assert_eq!(book.capture(3, cost(1)).charged, nanos(0));
    let extended = |amount| Ok(Outcome::Extended { amount: nanos(amount), revoked_by: None });
    assert_eq!(book.extend(2, 500, cost(0)), extended(30));
    assert_eq!(book.at(MIDNIGHT).extend(2, 500, cost(0)), extended(100));
}

#[test]
fn a_clock_that_steps_back_stays_in_the_window_that_has_begun() {
    let mut book = book(&[(Per::Day, 100)]);
    book.spend(1, 90);
    book.at(MIDNIGHT).spend(2, 60);
    book.now = book.now.minus(STEP);
    assert_eq!(book.hold(3, 41, 41, 41), reached("2026-11-22T00:00Z"));
    book.spend(3, 40);
    assert_eq!(book.at(MIDNIGHT).check(), reached("2026-11-22T00:00Z"));
    assert_eq!(book.at("2026-11-22T00:00Z").check(), Ok(Outcome::Allowed { models: None }));
}

#[test]
fn a_clock_that_steps_ahead_and_back_renews_a_window_once() {
    let mut book = book(&[(Per::Day, 100)]);
    book.at("2026-11-20T23:59:30Z").spend(1, 100);
    book.now = book.now.plus(STEP);
    book.spend(2, 70);
    book.now = book.now.minus(STEP);
    book.spend(3, 30);
    assert_eq!(book.check(), reached("2026-11-22T00:00Z"));
    // When the day begins by the correct clock, nothing is renewed again.
    assert_eq!(book.at(MIDNIGHT).check(), reached("2026-11-22T00:00Z"));
}

#[test]
fn what_a_clock_past_midnight_held_is_billed_to_the_new_day_by_a_clock_before_it() {
    let mut book = book(&[(Per::Day, 100)]);
    book.spend(1, 90);
    book.at(MIDNIGHT).must_hold(2, 60);
    book.must_hold(3, 10);
    assert_eq!(book.extend(3, 30, cost(0)), Ok(Outcome::Extended { amount: nanos(30), revoked_by: None }));
    book.now = book.now.minus(STEP);
    assert_eq!(book.capture(2, cost(60)).charged, nanos(60));
    assert_eq!(book.hold(4, 11, 11, 11), Err(Refused::Reserved));
    assert_eq!(book.capture(3, cost(30)).charged, nanos(30));
    assert_eq!(book.used(), [90]);
}

/// Lets a hold expire after a report of 80, captures `total` for it later, at `at`, and returns how much of each window
/// is then used.
fn late_capture(bounds: &[(Per, i64)], at: &str, total: i64) -> Vec<i64> {
    let mut book = book(bounds);
    book.must_hold(1, 100);
    book.extend(1, 0, cost(80)).unwrap();
    book.tick(3);
    book.expire(1).unwrap();
    book.at(at).spend(2, 100);
    book.capture(1, cost(total));
    book.used()
}

#[test]
fn what_a_late_capture_gives_back_is_taken_off_the_window_of_the_earlier_bill_alone() {
    let bounds = [(Per::Hour, 1_000), (Per::Day, 1_000)];
    assert_eq!(late_capture(&bounds, "2026-11-20T12:30Z", 10), [110, 110]);
    assert_eq!(late_capture(&bounds, "2026-11-20T13:30Z", 10), [100, 110]);
    assert_eq!(late_capture(&bounds, MIDNIGHT, 10), [100, 100]);
    // A higher cost is billed in the current window.
    assert_eq!(late_capture(&bounds, MIDNIGHT, 90), [110, 110]);
}

#[test]
fn a_late_capture_gives_nothing_back_to_a_window_set_after_the_bill() {
    let mut book = Book::new(1_000, None);
    expired(&mut book, 80);
    book.now = after(1);
    book.bound(&windows(&[(Per::Day, 100)]));
    book.spend(2, 50);
    book.capture(1, cost(0));
    assert_eq!(book.used(), [50]);
}

/// Lets a generation expire while the clock is ahead, sets a window, and captures less than the expiry billed. Returns
/// what the window has used.
fn used_after_a_late_capture(ahead: &str) -> Vec<i64> {
    let mut book = Book::new(1_000, None);
    expired(book.at(ahead), 80);
    book.at(NOON).bound(&windows(&[(Per::Day, 100)]));
    book.spend(2, 50);
    assert_eq!(book.capture(1, cost(10)).charged, nanos(10));
    book.used()
}

#[test]
fn a_window_that_is_set_while_bills_are_ahead_of_the_clock_takes_none_of_them_back() {
    assert_eq!(used_after_a_late_capture("2026-11-20T15:00Z"), [50]);
}

#[test]
fn what_a_clock_days_ahead_billed_is_given_back_to_no_window_that_was_set_since() {
    assert_eq!(used_after_a_late_capture("2026-11-25T15:00Z"), [50]);
}

#[test]
fn a_window_counts_from_the_time_at_which_it_was_set() {
    let mut book = Book::new(1_000, None);
    book.spend(1, 500);
    book.bound(&windows(&[(Per::Day, 100), (Per::Week, 1_000)]));
    book.spend(2, 30);
    assert_eq!(book.used(), [30, 30]);
    // A window of the same length keeps its spend; a new one begins empty.
    book.bound(&windows(&[(Per::Month, 50), (Per::Day, 40)]));
    assert_eq!(book.used(), [0, 30]);
    book.must_hold(3, 10);
    assert_eq!(book.hold(4, 1, 1, 1), Err(Refused::Reserved));
    book.capture(3, cost(10));
    book.bound(&windows(&[]));
    assert_eq!(book.key_mut().budget.bounds, None);
    book.must_hold(4, 400);
}

#[test]
fn a_window_lowered_under_what_is_held_bills_the_old_holds_and_opens_no_new_ones() {
    let mut book = book(&[(Per::Day, 100)]);
    book.must_hold(1, 80);
    book.bound(&windows(&[(Per::Day, 50)]));
    assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::Reserved));
    assert_eq!(book.capture(1, cost(90)).charged, nanos(80));
    assert_eq!(book.check(), reached(MIDNIGHT));
}

#[test]
fn the_refusal_names_the_time_at_which_everything_that_is_used_up_renews() {
    let mut book = book(&[(Per::Day, 100), (Per::Hour, 100), (Per::Month, 150), (Per::Week, 0)]);
    assert_eq!(book.check(), reached("2026-11-23T00:00Z"));
    book.bound(&windows(&[(Per::Day, 120), (Per::Hour, 110), (Per::Month, 150)]));
    book.spend(1, 100);
    assert_eq!(book.hold(2, 15, 15, 15), reached("2026-11-20T13:00Z"));
    assert_eq!(book.hold(2, 30, 30, 30), reached(MIDNIGHT));
    assert_eq!(book.hold(2, 51, 51, 51), reached("2026-12-01T00:00Z"));
    // The end of a window does not renew a lifetime limit.
    book.set_limit(Some(100));
    assert_eq!(book.check(), Err(KEY_LIMIT_REACHED));
}
