use std::collections::{HashSet, VecDeque};

use shared::time::Timestamp;

use super::*;

/// Returns a moment before this time.
fn before(time: Duration) -> Duration {
    time.saturating_sub(Duration::from_millis(1))
}

fn upstreams(in_flight: &[u64]) -> Vec<Candidate> {
    let candidate = |(place, in_flight): (usize, &u64)| Candidate {
        identity: mix(place as u64 + 1),
        weight: 1,
        in_flight: *in_flight,
        aside: false,
    };
    in_flight.iter().enumerate().map(candidate).collect()
}

/// Returns the health after these outcomes, all at the same time.
fn health(outcomes: &[AttemptOutcome]) -> Health {
    outcomes.iter().fold(Health::default(), |health, outcome| health.after(*outcome, Duration::ZERO))
}

#[test]
fn the_one_with_the_fewest_requests_for_its_weight_is_chosen() {
    let mut three = upstreams(&[5, 3, 4]);
    assert_eq!(choose(&three, None, 0, None), Some(1));
    three[0].weight = 4;
    assert_eq!(choose(&three, None, 0, None), Some(0), "6/4 is less than 4/1");
    three[0].aside = true;
    assert_eq!(choose(&three, None, 0, None), Some(1));
    assert_eq!(choose(&three, None, 0, Some(1)), Some(2), "another one than was tried");
    assert_eq!(choose(&[], None, 0, None), None);
}

#[test]
fn equals_take_turns_by_weight() {
    let mut two = upstreams(&[0, 0]);
    let first =
        |two: &[Candidate]| (0..10_000).filter(|turn| choose(two, None, *turn, None) == Some(0)).count();
    assert!((4_700..5_300).contains(&first(&two)), "{}", first(&two));
    // With none in flight, a request is a smaller load for the larger upstream.
    two[0].weight = 2;
    assert_eq!(first(&two), 10_000);
}

#[test]
fn the_only_upstream_is_never_set_aside_and_neither_are_all_of_several() {
    let mut one = upstreams(&[7]);
    one[0].aside = true;
    assert_eq!(choose(&one, None, 0, None), Some(0));
    assert_eq!(choose(&one, Some(1), 0, None), Some(0));
    assert_eq!(choose(&one, None, 0, Some(0)), None);
    let mut two = upstreams(&[2, 1]);
    for candidate in &mut two {
        candidate.aside = true;
    }
    assert_eq!(choose(&two, None, 0, None), Some(1));
    assert_eq!(choose(&two, None, 0, Some(1)), Some(0));
}

#[test]
fn what_begins_alike_goes_to_one_upstream_wherever_it_stands_and_whichever_gateway_asks() {
    let mut three = upstreams(&[0, 0, 0]);
    for affinity in 0..100 {
        let home = three[choose(&three, Some(affinity), affinity, None).unwrap()].identity;
        three.rotate_left(1);
        assert_eq!(three[choose(&three, Some(affinity), 7, None).unwrap()].identity, home);
    }
}

#[test]
fn openings_are_shared_out_by_weight_and_stay_where_they_are_when_another_upstream_goes() {
    let mut three = upstreams(&[0, 0, 0]);
    three[2].weight = 2;
    let homes = |three: &[Candidate]| {
        (0..10_000).map(|a| choose(three, Some(a), 0, None).unwrap()).collect::<Vec<_>>()
    };
    let before = homes(&three);
    let share = |of: usize| before.iter().filter(|home| **home == of).count();
    assert!(
        (2_300..2_700).contains(&share(0)) && (4_800..5_200).contains(&share(2)),
        "{} {}",
        share(0),
        share(2)
    );
    three[0].aside = true;
    for (before, after) in before.iter().zip(homes(&three)) {
        assert!(*before == after || *before == 0, "only requests of the removed upstream move");
    }
}

#[test]
fn an_upstream_with_much_more_than_its_share_gets_no_more_for_its_cache() {
    for affinity in 0..1_000 {
        let mut four = upstreams(&[0, 0, 0, 0]);
        for _ in 0..100 {
            let chosen = choose(&four, Some(affinity), 0, None).unwrap();
            four[chosen].in_flight += 1;
        }
        let most = four.iter().map(|candidate| candidate.in_flight).max().unwrap();
        assert!(most <= 32, "a quarter more than 25, rounded up: {most}");
    }
}

#[test]
fn failures_in_a_row_set_an_upstream_aside_and_one_request_tries_it_again() {
    assert!(!health(&[AttemptOutcome::Failed; 2]).is_set_aside());
    assert!(
        !health(&[
            AttemptOutcome::Failed,
            AttemptOutcome::Failed,
            AttemptOutcome::Served,
            AttemptOutcome::Failed
        ])
        .is_set_aside()
    );
    let aside = health(&[AttemptOutcome::Failed; 3]);
    assert!(aside.rests(None, before(FIRST_ASIDE)) && !aside.rests(None, FIRST_ASIDE));
    let tried = aside.tried(None, FIRST_ASIDE);
    assert!(tried.rests(None, FIRST_ASIDE), "other requests wait for the outcome of the trial");
    assert_eq!(tried.after(AttemptOutcome::Failed, FIRST_ASIDE), tried);
    assert!(
        tried.rests(None, before(FIRST_ASIDE * 3)) && !tried.rests(None, FIRST_ASIDE * 3),
        "twice as long"
    );
    assert!(!tried.after(AttemptOutcome::Answered, FIRST_ASIDE).is_set_aside());
}

#[test]
fn an_upstream_that_is_not_there_is_set_aside_at_once_and_one_that_is_busy_for_a_moment() {
    let gone = health(&[AttemptOutcome::Unreachable]);
    assert!(gone.rests(None, before(FIRST_ASIDE)));
    let busy = health(&[AttemptOutcome::Overloaded]);
    assert!(busy.rests(None, Duration::ZERO) && !busy.rests(None, BREATHER));
}

#[test]
fn however_long_an_upstream_is_away_it_is_tried_within_a_bound() {
    let (mut health, mut now) = (health(&[AttemptOutcome::Unreachable]), Duration::ZERO);
    for _ in 0..20 {
        now += LONGEST_ASIDE;
        assert!(!health.rests(None, now));
        health = health.tried(None, now).after(AttemptOutcome::Unreachable, now);
    }
}

#[test]
fn an_upstream_whose_every_answer_breaks_is_not_well_because_it_begins_them() {
    let broken = [AttemptOutcome::Answered, AttemptOutcome::Failed].repeat(3);
    assert!(health(&broken).is_set_aside());
}

/// Cache of the most recent conversations.
struct Cache(VecDeque<u64>);

impl Cache {
    /// Reads a conversation. Returns whether it was in the cache.
    fn read(&mut self, conversation: u64, room: usize) -> bool {
        let known = self.0.iter().position(|known| *known == conversation);
        known.map(|at| self.0.remove(at));
        self.0.push_back(conversation);
        if self.0.len() > room {
            self.0.pop_front();
        }
        known.is_some()
    }
}

/// Returns how many of 8,000 requests went to an upstream that had their conversation in its cache. The requests belong
/// to 200 conversations in random turns, each of four upstreams has room for 60, and 24 requests are in flight at any
/// time.
fn found(affine: bool) -> usize {
    let mut four = upstreams(&[0; 4]);
    let mut caches: Vec<_> = (0..4).map(|_| Cache(VecDeque::new())).collect();
    let mut in_flight = VecDeque::new();
    let mut found = 0;
    for turn in 0..8_000 {
        let conversation = mix(turn) % 200;
        let chosen = choose(&four, affine.then_some(mix(conversation)), turn, None).unwrap();
        found += usize::from(caches[chosen].read(conversation, 60));
        four[chosen].in_flight += 1;
        in_flight.push_back(chosen);
        if in_flight.len() > 24 {
            four[in_flight.pop_front().unwrap()].in_flight -= 1;
        }
    }
    found
}

#[test]
fn affinity_finds_what_was_read_more_than_twice_as_often() {
    // Measured: 6193 and 2353.
    let (with, without) = (found(true), found(false));
    assert!(with > 8_000 * 7 / 10, "{with} of 8000 with affinity");
    assert!(without < 8_000 * 4 / 10, "{without} of 8000 without");
}

#[test]
fn requests_find_a_home_among_distinct_upstreams() {
    let ten = upstreams(&[0; 10]);
    let homes: HashSet<_> = (0..1_000).map(|affinity| choose(&ten, Some(affinity), 0, None)).collect();
    assert_eq!(homes.len(), 10);
}

#[test]
fn a_failure_that_another_upstream_gave_alike_counts_against_neither() {
    let mut health = Health::default();
    for second in 0..100 {
        let now = Duration::from_secs(second);
        health = health.after(AttemptOutcome::Failed, now).excused(now);
        assert!(!health.is_set_aside(), "after {second} s");
        if second % 5 == 0 {
            health = health.after(AttemptOutcome::Answered, now);
        }
    }
    // Several requests at once may set the upstream aside before they turn out to be the cause.
    let mut health = self::health(&[AttemptOutcome::Failed; 3]);
    assert!(health.is_set_aside());
    for _ in 0..3 {
        health = health.excused(Duration::ZERO);
    }
    assert_eq!(health.after(AttemptOutcome::Answered, Duration::ZERO), Health::default());
}

#[test]
fn upstreams_that_fail_alike_and_answer_nothing_are_set_aside_all_the_same() {
    let fail = |health: Health, now| health.after(AttemptOutcome::Failed, now).excused(now);
    let mut health = fail(Health::default(), Duration::ZERO);
    assert_eq!(health.failures, 0);
    for _ in 0..FAILURES {
        health = fail(health, EXCUSED_FOR);
    }
    assert!(health.is_set_aside());
    let unreachable = self::health(&[AttemptOutcome::Unreachable]);
    assert!(unreachable.excused(Duration::ZERO).is_set_aside(), "no request makes an upstream unreachable");
}

fn account(number: u8) -> AccountId {
    AccountId::new(Timestamp::from_millis(1), [number; 10])
}

#[test]
fn what_one_account_passes_sets_no_upstream_aside_and_what_two_meet_does() {
    use AttemptOutcome::{Failed, Forbidden, Limited, Served, Unjudged};
    let (one, other) = (account(1), account(2));
    for alone in [Unjudged, Forbidden(one), Limited(one)] {
        assert!(!health(&[alone; 50]).is_set_aside(), "{alone:?}");
        let after_failures = health(&[Failed, Failed, alone, alone]);
        assert!(
            !after_failures.is_set_aside() && after_failures.after(Failed, Duration::ZERO).is_set_aside()
        );
    }
    assert!(health(&[Limited(one), Limited(other)]).rests(None, before(BREATHER)));
    let forbidden = [Forbidden(one), Forbidden(other), Forbidden(other), Forbidden(other)];
    assert!(!health(&forbidden[..3]).is_set_aside() && health(&forbidden).is_set_aside());
    assert!(!health(&[Limited(one), Served, Limited(other)]).is_set_aside(), "an answer lies between");
}

#[test]
fn failures_with_a_clients_query_or_headers_count_once_another_request_failed() {
    use AttemptOutcome::{Answered, Failed, FailedWithHead, Served};
    let (one, other) = (FailedWithHead(account(1)), FailedWithHead(account(2)));
    assert!(!health(&[one; 50]).is_set_aside());
    assert!(!health(&[Failed, one]).is_set_aside());
    assert!(health(&[Failed, one, one]).is_set_aside(), "one without them failed too");
    assert!(!health(&[one, one, Failed, Failed]).is_set_aside());
    let since = [Failed, Served, one, one, one];
    assert!(!health(&since).is_set_aside(), "an answer lies between");
    let begun = health(&[Failed; 3]).after(Answered, FIRST_ASIDE);
    assert!(begun.after(one, FIRST_ASIDE).is_set_aside(), "no whole answer came since");
    assert!(health(&[one, other, one, other]).is_set_aside(), "agents alone call a server that is broken");
    assert!(!health(&[one, Served, other, other]).is_set_aside(), "an answer lies between");
}

#[test]
fn a_server_that_is_broken_for_one_account_is_set_aside_for_that_account() {
    use AttemptOutcome::{Answered, Failed, FailedWithHead, Forbidden, Served};
    let (one, other) = (account(1), account(2));
    let failed = FailedWithHead(one);
    assert!(!health(&[failed, failed, Forbidden(one)]).rests(Some(one), Duration::ZERO));
    let broken = health(&[failed; 3]);
    assert!(broken.rests(Some(one), before(FIRST_ASIDE)) && !broken.rests(Some(one), FIRST_ASIDE));
    assert!(!broken.rests(Some(other), Duration::ZERO) && !broken.is_set_aside(), "others are served");
    // A request of another account is not a trial; one of this account is.
    assert!(!broken.tried(Some(other), FIRST_ASIDE).rests(Some(one), FIRST_ASIDE));
    let tried = broken.tried(Some(one), FIRST_ASIDE);
    assert!(tried.rests(Some(one), before(FIRST_ASIDE * 3)) && !tried.rests(Some(one), FIRST_ASIDE * 3));
    assert!(!tried.after(Answered, FIRST_ASIDE).rests(Some(one), FIRST_ASIDE));
    assert!(tried.after(Answered, FIRST_ASIDE).after(failed, FIRST_ASIDE).rests(Some(one), FIRST_ASIDE));
    assert_eq!(broken.after(Served, FIRST_ASIDE), Health::default());
    // Plain requests fail as well.
    let for_all =
        [Failed, failed, failed].into_iter().fold(broken, |health, of| health.after(of, Duration::ZERO));
    assert!(for_all.rests(Some(other), Duration::ZERO));
}

#[test]
fn a_trial_that_tells_nothing_leaves_the_next_request_to_try() {
    let aside = health(&[AttemptOutcome::Failed; 3]);
    let trial = aside.tried(None, FIRST_ASIDE);
    assert!(trial.rests(None, FIRST_ASIDE));
    let later = FIRST_ASIDE + Duration::from_millis(5);
    let told_nothing = trial.after(AttemptOutcome::Unjudged, later);
    assert!(told_nothing.is_set_aside() && !told_nothing.rests(None, later));
    // However many outcomes say nothing, a server that is gone stays set aside.
    let often = (0..50).fold(told_nothing, |health, _| health.after(AttemptOutcome::Unjudged, later));
    let gone = often.tried(None, later).after(AttemptOutcome::Unreachable, later);
    assert!(gone.rests(None, later + before(BREATHER)));
}
