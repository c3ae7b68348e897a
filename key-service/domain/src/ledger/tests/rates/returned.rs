//! Tests how many of the tokens that a request took but did not use are returned.

use proptest::{collection::vec, prelude::*};

use super::*;

const PER_MINUTE: u64 = 20_000;

#[test]
fn requests_that_wait_save_no_tokens_up() {
    let mut book = book(&tokens(PER_MINUTE));
    for n in 0..6 {
        book.request(n, PER_MINUTE).unwrap();
        book.wait(MINUTE);
    }
    book.request(6, PER_MINUTE).unwrap();
    for n in 0..6 {
        book.release(n).unwrap();
        assert_eq!(book.tokens_left(), 0, "the tokens of request {n} have refilled");
    }
    book.release(6).unwrap();
    assert_eq!(book.tokens_left(), PER_MINUTE, "no token of the last request has refilled");
}

#[test]
fn of_unused_tokens_those_come_back_that_have_not_refilled() {
    let mut book = book(&tokens(1_000));
    book.request(1, 600).unwrap();
    book.request(2, 200).unwrap();
    book.wait(MINUTE / 2);
    // 500 of 800 have refilled, equally for each request: 225 of the first are missing, and 75 of the second.
    assert_eq!(book.tokens_left(), 700);
    book.capture(1, usage(100, 0));
    assert_eq!(book.tokens_left(), 925);
    book.capture(2, usage(150, 30));
    assert_eq!(book.tokens_left(), 945, "only 20 were not used");
}

#[test]
fn the_order_in_which_requests_end_does_not_matter() {
    let left = |order: &[u8]| {
        let mut book = book(&tokens(PER_MINUTE));
        for n in 1..=10 {
            book.request(n, 1_500).unwrap();
        }
        book.wait(2_000);
        for n in order {
            book.capture(*n, usage(400, 0));
        }
        book.tokens_left()
    };
    let first_to_last: Vec<u8> = (1..=10).collect();
    let last_to_first: Vec<u8> = (1..=10).rev().collect();
    let expected = PER_MINUTE - 10 * 400 + 2_000 * PER_MINUTE / MINUTE;
    assert_eq!((left(&first_to_last), left(&last_to_first)), (expected, expected));
}

#[test]
fn every_level_returns_what_its_own_rate_still_misses() {
    let mut book = book(&tokens(1_000));
    book.bound_group(1, &tokens(4_000));
    book.join(1);
    book.request(1, 800).unwrap();
    book.wait(MINUTE / 10);
    book.release(1).unwrap();
    let now = book.now;
    let of_group = book.group_mut(1).budget.bounds.as_deref().unwrap().tokens_per_minute.unwrap();
    assert_eq!((book.tokens_left(), of_group.status(now).remaining), (1_000, 4_000));
    // A rate that the group gets later has not counted the request.
    book.bound_group(1, &BoundsPatch { tokens_per_minute: Some(None), ..in_flight(9) });
    book.request(2, 800).unwrap();
    book.bound_group(1, &tokens(900));
    book.request(3, 100).unwrap();
    book.release(2).unwrap();
    let of_group = book.group_mut(1).budget.bounds.as_deref().unwrap().tokens_per_minute.unwrap();
    assert_eq!((book.tokens_left(), of_group.status(now).remaining), (900, 800));
}

#[test]
fn a_bucket_that_never_fills_returns_what_is_missing_for_hours() {
    let mut book = book(&tokens(1_000));
    for n in 0..200 {
        book.request(n, 250).unwrap();
        book.wait(MINUTE / 4);
        assert!(book.tokens_left() <= 1_000);
        book.request(200 + n % 2, 1).unwrap();
        book.release(200 + n % 2).unwrap();
    }
    book.request(210, 500).unwrap();
    let before = book.tokens_left();
    book.release(210).unwrap();
    assert_eq!(book.tokens_left(), before + 500);
}

/// A step of a caller who wants more than the rate allows.
#[derive(Clone, Debug)]
enum Step {
    Begin {
        prompt: u64,
    },
    /// Ends an open request that used this share of its prompt, in thousandths, and this many answer tokens.
    End {
        which: usize,
        share: u64,
        answer: u64,
    },
    Leave {
        which: usize,
    },
    Report {
        which: usize,
        more: u64,
    },
    Wait {
        millis: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..8_usize;
    prop_oneof![
        6 => prop_oneof![1 => Just(PER_MINUTE), 3 => 1..PER_MINUTE].prop_map(|prompt| Step::Begin { prompt }),
        4 => (which(), 0..=1_000_u64, prop_oneof![3 => Just(0), 1 => 1..30_000_u64])
            .prop_map(|(which, share, answer)| Step::End { which, share, answer }),
        3 => which().prop_map(|which| Step::Leave { which }),
        1 => (which(), 0..30_000_u64).prop_map(|(which, more)| Step::Report { which, more }),
        5 => prop_oneof![3 => 0..5_000_u64, 1 => 0..120_000_u64].prop_map(|millis| Step::Wait { millis }),
    ]
}

/// An admitted request: its time, and the number of its prompt tokens that were used or may still be used.
struct Admitted {
    n: u8,
    at: u64,
    prompt: u64,
    used: u64,
    is_open: bool,
}

fn open(admitted: &mut [Admitted], which: usize) -> Option<&mut Admitted> {
    let count = admitted.iter().filter(|request| request.is_open).count();
    admitted.iter_mut().filter(|request| request.is_open).nth(which % count.max(1))
}

proptest! {
    /// In any span of time, the prompts of admitted requests use at most a full bucket and what it refills.
    #[test]
    fn no_span_of_time_admits_more_than_the_rate(steps in vec(step(), 1..120)) {
        let mut book = book(&tokens(PER_MINUTE));
        let (mut now, mut admitted) = (0_u64, Vec::<Admitted>::new());
        for step in steps {
            match step {
                Step::Wait { millis } => {
                    now += millis;
                    book.wait(millis);
                }
                Step::Begin { prompt } => {
                    let n = u8::try_from(admitted.len()).unwrap();
                    if book.request(n, prompt).is_ok() {
                        admitted.push(Admitted { n, at: now, prompt, used: prompt, is_open: true });
                    }
                }
                Step::End { which, share, answer } => if let Some(request) = open(&mut admitted, which) {
                    (request.used, request.is_open) = (request.prompt * share / 1_000, false);
                    book.capture(request.n, usage(request.used, answer));
                },
                Step::Leave { which } => if let Some(request) = open(&mut admitted, which) {
                    (request.used, request.is_open) = (0, false);
                    book.release(request.n).unwrap();
                },
                Step::Report { which, more } => if let Some(request) = open(&mut admitted, which) {
                    book.extend(request.n, 0, usage(request.prompt, more)).unwrap();
                },
            }
        }
        for (place, first) in admitted.iter().enumerate() {
            let mut used = 0;
            for last in &admitted[place..] {
                used += last.used;
                let most = PER_MINUTE * MINUTE + PER_MINUTE * (last.at - first.at);
                prop_assert!(used * MINUTE <= most, "{} tokens in {} ms", used, last.at - first.at);
            }
        }
    }
}
