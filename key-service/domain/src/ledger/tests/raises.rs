//! Tests that raises of limits hold until they end by themselves.

use shared::{
    calendar::Per,
    wire::{Limit, MAX_RAISE, Raise},
};

use super::*;
use crate::event::Threshold;

/// Returns when the raises of these tests end, a minute after their start.
fn end() -> Timestamp {
    after(60)
}

fn last_instant() -> Timestamp {
    end().minus(Duration::from_millis(1))
}

fn raise(amount: i64) -> Raise {
    Raise { amount: nanos(amount), until: end() }
}

/// Returns a lifetime limit that is raised until the end.
fn lifetime(amount: i64, raised: i64) -> BoundsPatch {
    BoundsPatch {
        limit: Some(Some(nanos(amount))),
        limit_raised: Some(Some(raise(raised))),
        ..BoundsPatch::default()
    }
}

/// Returns a limit for each window of this length, raised until the end.
fn window(per: Per, amount: i64, raised: i64) -> BoundsPatch {
    let limit = Limit { raised: Some(raise(raised)), ..Limit::new(nanos(amount), per) };
    BoundsPatch { windows: Some(vec![limit]), ..BoundsPatch::default() }
}

fn both(amount: i64, raised: i64) -> [BoundsPatch; 2] {
    [lifetime(amount, raised), window(Per::Month, amount, raised)]
}

fn book(bounds: &BoundsPatch) -> Book {
    let mut book = Book::new(100_000, None);
    book.bound(bounds);
    book
}

fn is_reached(answer: &Result<Outcome, Refused>, level: Level) -> bool {
    matches!(answer, Err(Refused::LimitReached { level: of, .. }) if *of == level)
}

const ALLOWED: Result<Outcome, Refused> = Ok(Outcome::Allowed { models: None });

#[test]
fn a_raise_bounds_until_its_last_instant_and_the_limit_itself_from_the_next_one_on() {
    for bounds in both(100, 200) {
        let mut book = book(&bounds);
        book.must_hold(1, 150);
        book.capture(1, cost(150));
        assert!(is_reached(&book.hold(2, 51, 51, 51), Level::Key), "the raise is the maximum");
        book.now = last_instant();
        assert_eq!(book.check(), ALLOWED);
        book.must_hold(2, 50);
        book.release(2).unwrap();
        book.now = end();
        assert!(is_reached(&book.check(), Level::Key));
        assert!(is_reached(&book.hold(3, 1, 1, 1), Level::Key));
        assert_eq!(book.sums(), (100_000 - 150, 0, 150));
    }
}

#[test]
fn a_raise_of_a_group_and_of_its_parent_bounds_their_keys_until_it_ends() {
    for (n, level) in [(1, Level::Group), (0, Level::Parent)] {
        for bounds in both(100, 200) {
            let mut book = Book::new(100_000, None);
            book.join(1);
            book.bound_group(n, &bounds);
            book.must_hold(1, 150);
            book.capture(1, cost(150));
            assert_eq!(book.check(), ALLOWED);
            book.now = end();
            assert!(is_reached(&book.check(), level));
        }
    }
}

#[test]
fn what_is_held_when_a_raise_ends_stays_held_and_an_extension_is_judged_by_the_limit_itself() {
    for bounds in both(100, 200) {
        let mut book = book(&bounds);
        book.must_hold(1, 120);
        book.must_hold(2, 30);
        book.now = end();
        let extended = |amount| Ok(Outcome::Extended { amount: nanos(amount), revoked_by: None });
        assert_eq!(book.extend(1, 140, cost(110)), extended(120), "nothing more is held");
        assert_eq!(book.hold(3, 1, 1, 1), Err(Refused::Reserved));
        let settlement = book.capture(1, cost(130));
        assert_eq!(
            (settlement.charged, settlement.shortfall()),
            (nanos(120), nanos(10)),
            "the whole hold is captured, but nothing more"
        );
        assert!(is_reached(&book.check(), Level::Key));
        assert_eq!(book.capture(2, cost(30)).charged, nanos(30));
        assert_eq!(book.capture(4, cost(5)).charged, nanos(0), "there is no hold to cover it");
        assert_eq!(book.sums(), (100_000 - 150, 0, 150));
    }
}

#[test]
fn each_command_is_judged_at_its_own_time() {
    for bounds in both(100, 200) {
        let mut book = book(&bounds);
        book.must_hold(1, 90);
        book.now = last_instant();
        let extended = |amount| Ok(Outcome::Extended { amount: nanos(amount), revoked_by: None });
        assert_eq!(book.extend(1, 150, cost(0)), extended(150));
        // An amount without a hold is billed under the limit in force at its capture.
        assert_eq!(book.capture(1, cost(170)).charged, nanos(170));
        let mut book = self::book(&bounds);
        book.must_hold(1, 90);
        book.now = end();
        assert_eq!(book.capture(1, cost(170)).charged, nanos(100));
    }
}

#[test]
fn a_raise_goes_on_when_its_window_turns_and_ends_within_the_next() {
    let mut book = Book::new(100_000, None);
    let turn = Per::Hour.end(START);
    let raised = Raise { amount: nanos(200), until: turn.plus(Duration::from_mins(10)) };
    let limit = Limit { raised: Some(raised), ..Limit::new(nanos(100), Per::Hour) };
    book.bound(&BoundsPatch { windows: Some(vec![limit]), ..BoundsPatch::default() });
    book.must_hold(1, 200);
    book.capture(1, cost(200));
    assert!(is_reached(&book.check(), Level::Key));
    book.now = turn;
    book.must_hold(2, 150);
    book.capture(2, cost(150));
    assert_eq!(book.check(), ALLOWED);
    book.now = raised.until;
    assert!(is_reached(&book.check(), Level::Key));
    book.now = Per::Hour.end(turn);
    book.must_hold(3, 100);
    assert!(is_reached(&book.hold(4, 101, 101, 101), Level::Key));
}

#[test]
fn a_clock_that_steps_back_brings_no_raise_back_that_a_hold_has_seen_end() {
    for bounds in both(100, 200) {
        let mut book = book(&bounds);
        book.now = end();
        book.must_hold(1, 60);
        book.now = START;
        assert_eq!(book.hold(2, 41, 41, 41), Err(Refused::Reserved));
        book.must_hold(2, 40);
    }
    let mut book = book(&lifetime(100, 200));
    book.now = end();
    book.must_hold(1, 60);
    assert_eq!(book.key_mut().budget.bounds, None, "the raise leaves nothing behind");
}

#[test]
fn a_new_limit_ends_the_raise_of_the_one_before_and_other_changes_leave_it() {
    let limit = |limit: Option<i64>| BoundsPatch::of_limit(limit.map(nanos));
    let in_force = |book: &mut Book| book.key_mut().budget.limit_at(START).map(NanoUsd::nanos);
    let mut book = book(&lifetime(100, 200));
    book.bound(&BoundsPatch { max_in_flight: Some(Some(3)), ..window(Per::Day, 900, 950) });
    assert_eq!(in_force(&mut book), Some(200));
    book.bound(&limit(Some(100)));
    assert_eq!(in_force(&mut book), Some(100));
    book.bound(&lifetime(120, 300));
    assert_eq!(in_force(&mut book), Some(300), "a limit and its raise are set together");
    book.bound(&BoundsPatch { limit_raised: Some(None), ..BoundsPatch::default() });
    assert_eq!(in_force(&mut book), Some(120));
    book.bound(&limit(None));
    assert_eq!(in_force(&mut book), None);
    let of_day = |book: &mut Book| book.bounds().windows[0].amount_at(START).nanos();
    assert_eq!(of_day(&mut book), 950);
    let windows = vec![Limit::new(nanos(900), Per::Day)];
    book.bound(&BoundsPatch { windows: Some(windows), ..BoundsPatch::default() });
    assert_eq!(of_day(&mut book), 900, "replacing limits without the raise ends the raise");
}

#[test]
fn a_moved_or_rotated_key_keeps_its_raise_and_its_holds_stay_with_their_groups() {
    let mut book = book(&lifetime(100, 200));
    book.bound_group(2, &lifetime(100, 400));
    book.join(2);
    book.must_hold(1, 150);
    book.join(1);
    let new = crate::key::NewCredential {
        account: account(MINE),
        key: key(0),
        digest: crate::credentials::digest::Digest::of(b"new"),
        hint: String::new(),
        grace: Duration::from_mins(5),
        is_forced: false,
    };
    book.world.rotate(&new, START);
    book.must_hold(2, 50);
    book.now = end();
    assert_eq!(book.capture(1, cost(150)).charged, nanos(150));
    assert_eq!(book.group_mut(2).budget.used, nanos(150));
    assert_eq!(book.group_mut(1).budget.held, nanos(50));
}

impl Book {
    /// Returns the percentages and amounts of the limits reported so far.
    fn told_of_raises(&self) -> Vec<(u8, i64)> {
        let events = self.world.events[&account(MINE)].iter();
        let line = |Threshold { percent, amount, .. }: &Threshold| (*percent, amount.nanos());
        events.filter_map(|told| told.event.kind.threshold().map(line)).collect()
    }
}

#[test]
fn thresholds_are_parts_of_the_bound_in_force() {
    for bounds in both(100, 200) {
        let mut book = book(&bounds);
        book.must_hold(1, 120);
        book.capture(1, cost(120));
        assert_eq!(book.told_of_raises(), [(50, 200)]);
        book.must_hold(2, 80);
        book.capture(2, cost(40));
        assert_eq!(book.told_of_raises()[1..], [(80, 200)]);
        // The first command after the end reports how much of the limit's own amount is used.
        book.must_hold(3, 10);
        book.now = end();
        book.extend(3, 10, cost(0)).unwrap();
        // As when a limit is lowered, percentages that were already reached under the earlier amount are left out.
        let reached = [(95, 100), (100, 100)];
        assert_eq!(book.told_of_raises()[2..], reached);
        book.capture(3, cost(10));
        book.hold(4, 1, 1, 1).unwrap_err();
        assert_eq!(book.told_of_raises().len(), 2 + reached.len(), "each threshold is reported once");
    }
}

#[test]
fn a_hold_that_sees_a_raise_ended_tells_what_use_has_reached_meanwhile() {
    for bounds in both(100, 200) {
        let mut book = book(&bounds);
        book.must_hold(1, 85);
        book.capture(1, cost(85));
        assert_eq!(book.told_of_raises(), []);
        book.now = end();
        book.must_hold(2, 5);
        assert_eq!(book.told_of_raises(), [(50, 100), (80, 100)]);
        book.capture(2, cost(5));
        assert_eq!(book.told_of_raises().len(), 2);
    }
}

#[test]
fn a_limit_that_was_reached_before_it_was_raised_is_not_told_again_after() {
    let mut book = Book::new(100_000, Some(100));
    book.must_hold(1, 90);
    book.capture(1, cost(90));
    book.hold(2, 20, 20, 20).unwrap_err();
    let told = book.told_of_raises();
    assert_eq!(told, [(50, 100), (80, 100), (100, 100)]);
    book.bound(&BoundsPatch { limit_raised: Some(Some(raise(200))), ..BoundsPatch::default() });
    book.must_hold(2, 20);
    book.capture(2, cost(20));
    book.now = end();
    book.hold(3, 1, 1, 1).unwrap_err();
    assert_eq!(book.told_of_raises(), [&told[..], &[(50, 200)]].concat());
}

#[test]
fn a_raise_is_above_its_limit_and_ends_within_366_days() {
    let at = |amount, until| Raise { amount: nanos(amount), until };
    let longest = START.plus(MAX_RAISE);
    let none = Budget::default();
    let limited = Budget { limit: Some(nanos(100)), ..Budget::default() };
    let limit_raised = |raise, limit: Option<Option<i64>>| BoundsPatch {
        limit: limit.map(|limit| limit.map(nanos)),
        limit_raised: Some(Some(raise)),
        ..BoundsPatch::default()
    };
    let cases = [
        (at(101, after(1)), Ok(())),
        (at(101, longest), Ok(())),
        (at(100, after(1)), Err(RaiseFault::NotAbove(nanos(100)))),
        (at(1, after(1)), Err(RaiseFault::NotAbove(nanos(100)))),
        (at(101, START), Err(RaiseFault::Over)),
        (at(101, START.minus(Duration::from_secs(1))), Err(RaiseFault::Over)),
        (at(101, longest.plus(Duration::from_millis(1))), Err(RaiseFault::TooLong)),
    ];
    for (raise, judged) in cases {
        let lifetime = judged.map_err(|fault| BadRaise { window: None, fault });
        assert_eq!(limit_raised(raise, None).judge_raises(&limited, START), lifetime, "{raise:?}");
        assert_eq!(limit_raised(raise, Some(Some(100))).judge_raises(&none, START), lifetime, "{raise:?}");
        let windows = vec![
            Limit::new(nanos(7), Per::Month),
            Limit { raised: Some(raise), ..Limit::new(nanos(100), Per::Day) },
        ];
        let patch = BoundsPatch { windows: Some(windows), ..BoundsPatch::default() };
        let window = judged.map_err(|fault| BadRaise { window: Some((1, Per::Day)), fault });
        assert_eq!(patch.judge_raises(&none, START), window, "{raise:?}");
        let made = Budget::new(&patch, START);
        assert_eq!(made.judge_raises(START), window, "a new budget with this raise: {raise:?}");
    }
    let no_limit = Err(BadRaise { window: None, fault: RaiseFault::NoLimit });
    assert_eq!(limit_raised(at(101, after(1)), None).judge_raises(&none, START), no_limit);
    assert_eq!(limit_raised(at(101, after(1)), Some(None)).judge_raises(&limited, START), no_limit);
    assert_eq!(BoundsPatch::of_limit(Some(nanos(5))).judge_raises(&limited, START), Ok(()));
}
