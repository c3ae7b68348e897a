//! Tests rates, requests in flight, and models.

mod returned;

use shared::rates::{RateBound, RateLimit, TokenRoom};

use super::*;

const MINUTE: u64 = 60_000;

fn requests(per_minute: u64) -> BoundsPatch {
    BoundsPatch { requests_per_minute: Some(Some(per_minute)), ..BoundsPatch::default() }
}

fn tokens(per_minute: u64) -> BoundsPatch {
    BoundsPatch { tokens_per_minute: Some(Some(per_minute)), ..BoundsPatch::default() }
}

fn in_flight(most: u64) -> BoundsPatch {
    BoundsPatch { max_in_flight: Some(Some(most)), ..BoundsPatch::default() }
}

fn models(models: &[&str]) -> BoundsPatch {
    let models = models.iter().map(ToString::to_string).collect();
    BoundsPatch { models: Some(Some(models)), ..BoundsPatch::default() }
}

fn usage(prompt: u64, completion: u64) -> Progress {
    Progress { usage: Usage::of(prompt, 0, completion), cost: nanos(1), upstream_cost: None, course: None }
}

fn limited(bound: RateBound, millis: u64) -> Result<Outcome, Refused> {
    let retry_after = Duration::from_millis(millis);
    Err(Refused::RateLimited { bound, retry_after, token_room: None })
}

/// Returns the refusal of a token rate with this room.
fn no_room(millis: u64, limit: u64, remaining: u64) -> Result<Outcome, Refused> {
    let (bound, retry_after) = (RateBound::Tokens, Duration::from_millis(millis));
    Err(Refused::RateLimited { bound, retry_after, token_room: Some(TokenRoom { limit, remaining }) })
}

/// Returns a ledger whose key has these bounds.
fn book(bounds: &BoundsPatch) -> Book {
    let mut book = Book::new(1_000_000, None);
    book.bound(bounds);
    book
}

impl Book {
    fn wait(&mut self, millis: u64) {
        self.now = self.now.plus(Duration::from_millis(millis));
    }

    /// Holds a small amount for a request with this many prompt tokens.
    fn request(&mut self, n: u8, prompt_tokens: u64) -> Result<Outcome, Refused> {
        self.ask(n, prompt_tokens, false)
    }

    fn ask(&mut self, n: u8, prompt_tokens: u64, readmitted: bool) -> Result<Outcome, Refused> {
        let new = new_hold(key(0), generation(n), nanos(1));
        self.run(&Command::Hold(NewHold { prompt_tokens, readmitted, lease_ticks: 3, ..new }))
    }

    /// Returns how many requests without tokens are admitted now, beginning with generation `first`.
    fn admitted(&mut self, first: u8) -> u8 {
        let mut next = first;
        while self.request(next, 0).is_ok() {
            next += 1;
        }
        assert!(matches!(self.request(next, 0), Err(Refused::RateLimited { .. })));
        next - first
    }

    /// Returns how many tokens the key's rate still admits.
    fn tokens_left(&mut self) -> u64 {
        let now = self.now;
        self.bounds().tokens_per_minute.unwrap().status(now).remaining
    }
}

#[test]
fn a_rate_admits_its_number_at_once_and_then_as_many_in_each_minute() {
    let mut book = book(&requests(50));
    assert_eq!(book.admitted(0), 50);
    assert_eq!(book.request(50, 0), limited(RateBound::Requests, 1_200));
    book.wait(1_199);
    assert_eq!(book.request(50, 0), limited(RateBound::Requests, 1));
    book.wait(1);
    assert_eq!(book.admitted(50), 1);
    book.wait(MINUTE / 2);
    assert_eq!(book.admitted(51), 25);
    book.wait(MINUTE);
    assert_eq!(book.admitted(76), 50);
    book.wait(MINUTE * 60);
    assert_eq!(book.admitted(126), 50);
}

#[test]
fn a_readmitted_request_counts_once_for_requests_per_minute_and_anew_for_all_else() {
    let all = BoundsPatch { tokens_per_minute: Some(Some(100)), max_in_flight: Some(Some(1)), ..requests(1) };
    let mut book = book(&all);
    book.request(1, 60).unwrap();
    assert_eq!(book.ask(2, 60, true), limited(RateBound::InFlight, 1_000), "the first hold is open");
    book.release(1).unwrap();
    assert_eq!(book.request(2, 60), limited(RateBound::Requests, MINUTE));
    assert!(matches!(book.ask(2, 101, true), Err(Refused::RateLimited { bound: RateBound::Tokens, .. })));
    book.ask(2, 60, true).unwrap();
    assert_eq!(book.tokens_left(), 40);
    book.release(2).unwrap();
    book.wait(MINUTE);
    assert_eq!(book.admitted(3), 1);
}

#[test]
fn a_refused_request_counts_nothing_and_a_repeated_one_once() {
    let mut book = book(&requests(2));
    book.request(1, 0).unwrap();
    assert_eq!(book.hold(2, 9_999_999, 9_999_999, 9_999_999), Err(Refused::CreditEmpty));
    let again = book.request(1, 0);
    assert_eq!(book.request(1, 0), again);
    assert_eq!(book.admitted(3), 1);
    let before = book.world.clone();
    assert!(matches!(book.request(9, 0), Err(Refused::RateLimited { .. })));
    assert_eq!(book.check(), Ok(Outcome::Allowed { models: None }));
    assert_eq!(book.world, before);
}

#[test]
fn a_released_request_stays_counted_and_its_tokens_come_back() {
    let mut book = book(&BoundsPatch { tokens_per_minute: Some(Some(1_000)), ..requests(2) });
    book.request(1, 900).unwrap();
    assert_eq!(book.request(2, 101), no_room(60, 1_000, 100));
    book.release(1).unwrap();
    book.request(2, 1_000).unwrap();
    assert_eq!(book.admitted(3), 0);
}

#[test]
fn the_prompts_bound_counts_until_what_was_used_is_known() {
    let mut book = book(&tokens(1_000));
    book.request(1, 800).unwrap();
    assert_eq!(book.tokens_left(), 200);
    // A report below the assumed maximum is not final yet, but one above it counts.
    book.extend(1, 0, usage(300, 100)).unwrap();
    assert_eq!(book.tokens_left(), 200);
    book.extend(1, 0, usage(300, 600)).unwrap();
    assert_eq!(book.tokens_left(), 100);
    // An older report arrives late.
    book.extend(1, 0, usage(300, 550)).unwrap();
    assert_eq!(book.tokens_left(), 100);
    book.capture(1, usage(250, 250));
    assert_eq!(book.tokens_left(), 500);
    book.capture(1, usage(9, 9));
    assert_eq!(book.tokens_left(), 500);
}

#[test]
fn an_answer_may_pass_the_rate_and_is_made_up_for() {
    let mut book = book(&tokens(1_000));
    book.request(1, 100).unwrap();
    book.capture(1, usage(100, 2_900));
    assert_eq!(book.tokens_left(), 0);
    // 2,000 tokens too many were used, and one more has to fit.
    assert_eq!(book.request(2, 1), no_room(2 * MINUTE + 60, 1_000, 0));
    book.wait(2 * MINUTE);
    assert_eq!(book.request(2, 1), no_room(60, 1_000, 0));
    book.wait(MINUTE);
    book.request(2, 1_000).unwrap();
}

#[test]
fn an_expiry_counts_what_was_reported() {
    let mut book = book(&BoundsPatch { max_in_flight: Some(Some(1)), ..tokens(1_000) });
    book.request(1, 800).unwrap();
    book.extend(1, 0, usage(300, 100)).unwrap();
    book.tick(3);
    book.expire(1).unwrap();
    assert_eq!(book.tokens_left(), 600);
    assert_eq!(book.bounds().in_flight, 0);
}

#[test]
fn a_late_capture_counts_nothing_again() {
    let mut book = book(&BoundsPatch { max_in_flight: Some(Some(2)), ..tokens(1_000) });
    expired(&mut book, 10);
    book.request(2, 100).unwrap();
    let before = book.bounds();
    book.capture(1, usage(1, 1));
    book.capture(3, usage(1, 1));
    assert_eq!(book.bounds(), before);
}

#[test]
fn a_prompt_larger_than_the_rate_never_fits() {
    let mut book = book(&tokens(1_000));
    assert_eq!(book.request(1, 1_001), no_room(60, 1_000, 1_000));
    book.wait(60 * MINUTE);
    assert_eq!(book.request(1, 1_001), no_room(60, 1_000, 1_000));
    book.request(1, 1_000).unwrap();
}

#[test]
fn a_clock_that_steps_refills_nothing_twice() {
    let mut book = book(&requests(60));
    assert_eq!(book.admitted(0), 60);
    book.wait(40_000);
    book.request(60, 0).unwrap();
    book.now = book.now.minus(Duration::from_secs(40));
    assert_eq!(book.admitted(61), 39);
    // The bucket has restarted: it refills although the clock is behind.
    book.wait(2_000);
    assert_eq!(book.admitted(100), 2);
}

#[test]
fn a_clock_that_is_behind_by_a_second_refills_nothing_and_by_more_begins_anew() {
    let taken = Rate { taken: 60 * RATE_UNITS, ..Rate::new(60, START) };
    let ahead = Rate { at: START.plus(Duration::from_secs(1)), ..taken };
    assert_eq!(ahead.at(START), ahead, "clocks that differ by a second");
    let far = Rate { at: ahead.at.plus(Duration::from_millis(1)), ..taken };
    assert_eq!(far.at(START), Rate { at: START, ..taken });
    let later = START.plus(Duration::from_secs(30));
    assert_eq!(far.at(START).at(later).status(later).remaining, 30);
}

#[test]
fn requests_in_flight_end_by_capture_release_and_expiry() {
    let mut book = book(&in_flight(2));
    assert_eq!(book.admitted(0), 2);
    assert_eq!(book.request(2, 0), limited(RateBound::InFlight, 1_000));
    book.capture(0, usage(1, 1));
    assert_eq!(book.admitted(2), 1);
    book.release(1).unwrap();
    assert_eq!(book.admitted(3), 1);
    book.tick(3);
    book.expire(2).unwrap();
    book.expire(3).unwrap();
    assert_eq!(book.admitted(4), 2);
    // Repeated commands free nothing more.
    book.capture(0, usage(1, 1));
    book.release(1).unwrap();
    book.expire(3).unwrap();
    assert_eq!(book.admitted(6), 0);
}

#[test]
fn a_bound_counts_the_requests_that_begin_after_it_was_set() {
    let mut book = Book::new(1_000, None);
    book.request(1, 50).unwrap();
    book.bound(&BoundsPatch { tokens_per_minute: Some(Some(100)), ..in_flight(1) });
    book.request(2, 50).unwrap();
    book.capture(1, usage(10, 10));
    assert_eq!((book.bounds().in_flight, book.tokens_left()), (1, 50));
    // Bounds that are removed and set again still count the running requests.
    let none = BoundsPatch {
        requests_per_minute: Some(None),
        tokens_per_minute: Some(None),
        max_in_flight: Some(None),
        ..BoundsPatch::default()
    };
    book.bound(&none);
    book.bound(&in_flight(1));
    assert_eq!(book.request(3, 0), limited(RateBound::InFlight, 1_000));
    book.bound(&none);
    book.capture(2, usage(10, 10));
    assert_eq!(book.key_mut().budget.bounds, None);
}

#[test]
fn a_changed_rate_keeps_what_was_taken() {
    let mut book = book(&requests(10));
    assert_eq!(book.admitted(0), 10);
    book.bound(&requests(15));
    assert_eq!(book.admitted(10), 5);
    book.bound(&requests(5));
    book.wait(MINUTE);
    // 15 requests were taken, and a minute refills 5.
    assert_eq!(book.admitted(15), 0);
    book.wait(2 * MINUTE);
    assert_eq!(book.admitted(15), 5);
}

#[test]
fn every_level_bounds_rates_and_requests_in_flight() {
    let mut book = Book::new(1_000, None);
    book.join(1);
    book.bound(&requests(30));
    book.bound_group(1, &requests(20));
    book.bound_group(0, &requests(10));
    assert_eq!(book.admitted(0), 10);
    // The refusal contains the longest wait of all levels.
    assert_eq!(book.request(10, 0), limited(RateBound::Requests, 6_000));
    book.bound_group(1, &BoundsPatch { requests_per_minute: Some(None), ..in_flight(11) });
    book.wait(MINUTE);
    assert_eq!(book.admitted(10), 1);
    assert_eq!(book.request(11, 0), limited(RateBound::InFlight, 1_000));
}

#[test]
fn a_hold_answers_the_tightest_rates() {
    let rates = |outcome: Result<Outcome, Refused>| match outcome {
        Ok(Outcome::Held { rates, .. }) => rates,
        other => panic!("not held: {other:?}"),
    };
    let mut book = book(&BoundsPatch { tokens_per_minute: Some(Some(6_000)), ..requests(60) });
    book.bound_group(1, &BoundsPatch { tokens_per_minute: Some(Some(600)), ..requests(600) });
    let limit =
        |limit, remaining, millis| Some(RateLimit { limit, remaining, reset: Duration::from_millis(millis) });
    let alone = rates(book.request(1, 700));
    assert_eq!((alone.requests, alone.tokens), (limit(60, 59, 1_000), limit(6_000, 5_300, 7_000)));
    book.join(1);
    let both = rates(book.request(2, 30));
    assert_eq!((both.requests, both.tokens), (limit(60, 58, 2_000), limit(600, 570, 3_000)));
    book.wait(1_500);
    // A repeated hold returns the rates as they are now.
    let again = rates(book.request(2, 30));
    assert_eq!((again.requests, again.tokens), (limit(60, 59, 500), limit(600, 585, 1_500)));
}

#[test]
fn models_are_those_that_key_group_and_parent_allow() {
    let mut book = Book::new(1_000, None);
    book.bound_group(0, &models(&["Model Flash", "Model Max", "Model Mini"]));
    book.join(1);
    book.request(1, 0).unwrap();
    book.bound_group(1, &models(&["Model Mini", "Model Max"]));
    let refused = |models: &[&str]| {
        let models = models.iter().map(ToString::to_string).collect();
        Err(Refused::ModelNotAllowed { models })
    };
    assert_eq!(book.request(2, 0), refused(&["Model Mini", "Model Max"]));
    book.bound(&models(&["Model Flash", "Model Max"]));
    assert_eq!(book.request(2, 0), refused(&["Model Max"]));
    assert_eq!(book.check(), Ok(Outcome::Allowed { models: Some(vec!["Model Max".into()]) }));
    // A request that began earlier continues.
    assert_eq!(book.capture(1, usage(1, 1)).charged, nanos(1));
}

#[test]
fn models_come_before_requests_in_flight_then_requests_then_tokens_then_what_is_left() {
    let all = BoundsPatch {
        models: Some(Some(Vec::new())),
        max_in_flight: Some(Some(1)),
        tokens_per_minute: Some(Some(10)),
        ..requests(1)
    };
    let mut book = book(&in_flight(2));
    book.request(1, 0).unwrap();
    book.bound(&all);
    book.bound(&BoundsPatch { models: Some(Some(vec!["Model Flash".into()])), ..BoundsPatch::default() });
    assert_eq!(book.request(2, 600), limited(RateBound::InFlight, 1_000));
    book.bound(&BoundsPatch { models: Some(Some(Vec::new())), ..BoundsPatch::default() });
    assert_eq!(book.request(2, 600), Err(Refused::ModelNotAllowed { models: Vec::new() }));
    book.bound(&BoundsPatch { models: Some(None), max_in_flight: Some(None), ..BoundsPatch::default() });
    book.request(3, 0).unwrap();
    // The only request of the minute is taken; 600 tokens would take an hour.
    assert_eq!(book.request(2, 600), limited(RateBound::Requests, MINUTE));
    book.wait(MINUTE);
    book.set_limit(Some(1));
    assert_eq!(book.request(2, 610), no_room(60 * MINUTE, 10, 10));
    assert_eq!(book.hold(2, 2, 2, 2), Err(KEY_LIMIT_REACHED));
    assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::Reserved));
}

#[test]
fn no_number_is_too_large() {
    let mut book = book(&tokens(1_000_000_000));
    assert!(matches!(book.request(1, u64::MAX), Err(Refused::RateLimited { .. })));
    for n in 1..=9 {
        book.request(n, 0).unwrap();
    }
    for n in 1..=9 {
        book.capture(n, usage(u64::MAX, u64::MAX));
    }
    assert_eq!(book.bounds().tokens_per_minute.unwrap().taken, MOST_TAKEN);
    book.wait(MINUTE * 60 * 24);
    assert_eq!(book.tokens_left(), 1_000_000_000);
    book.request(10, 0).unwrap();
    book.now = Timestamp::from_millis(i64::MIN);
    book.request(11, 1_000_000_000).unwrap();
    book.now = Timestamp::from_millis(i64::MAX);
    assert_eq!(book.tokens_left(), 1_000_000_000);
}

#[test]
fn the_room_for_a_prompt_is_that_of_the_tightest_levels() {
    let mut book = book(&tokens(1_000));
    book.bound_group(1, &tokens(5_000));
    book.join(1);
    book.request(1, 900).unwrap();
    book.bound_group(1, &tokens(940));
    assert_eq!(book.request(2, 101), no_room(3_894, 940, 40));
}
