//! Runs of many seeds.

use std::{
    env,
    num::NonZero,
    thread,
    time::{Duration, Instant},
};

use crate::course::run::{RunEnd, run};

/// Number of seeds in `make test`.
const SEEDS: u64 = 1_000;

/// Runs a seed. If a promise is broken, prints the run's events and fails.
fn hold(seed: u64) -> RunEnd {
    let end = run(seed);
    assert!(
        end.broken.is_empty(),
        "{}\n\nseed {seed} broke a promise:\n{}\nrun it again: PROVE_ONLY=simulation PROVE_SEED={seed} PROVE_MINUTES=0 make prove",
        end.text,
        end.broken.join("\n")
    );
    end
}

/// Runs the seeds from 1 to `last`, one per core at a time.
fn run_up_to(last: u64) -> Vec<RunEnd> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let mut ends: Vec<(u64, RunEnd)> = thread::scope(|scope| {
        let share = |first: u64| {
            scope.spawn(move || (first..=last).step_by(cores).map(|seed| (seed, run(seed))).collect())
        };
        let shares: Vec<_> = (1..).take(cores).map(share).collect();
        shares
            .into_iter()
            .flat_map(|share| -> Vec<_> { share.join().expect("a run does not panic") })
            .collect()
    });
    ends.sort_by_key(|(seed, _)| *seed);
    ends.into_iter().map(|(_, end)| end).collect()
}

#[test]
fn the_same_seed_has_the_same_course() {
    for seed in 1..=20 {
        let (one, other) = (run(seed), run(seed));
        if one.hash != other.hash {
            let differ = one.text.lines().zip(other.text.lines()).find(|(one, other)| one != other);
            panic!("seed {seed} differs: {differ:?}");
        }
    }
}

#[test]
fn a_thousand_seeds_keep_every_promise() {
    let began = Instant::now();
    let ends = run_up_to(SEEDS);
    let broken: Vec<_> = (1..).zip(&ends).filter(|(_, end)| !end.broken.is_empty()).collect();
    for (seed, end) in &broken {
        println!("seed {seed}: {}", end.broken.join("; "));
    }
    if let Some((seed, _)) = broken.first() {
        hold(*seed);
    }
    let served: usize = ends.iter().map(|end| end.served).sum();
    let faults: usize = ends.iter().map(|end| end.faults).sum();
    println!("{SEEDS} seeds, {served} answers, {faults} faults, {:.1} s", began.elapsed().as_secs_f64());
    assert!(served > 2_500 && faults > 3_000, "the runs show nothing: {served} answers, {faults} faults");
}

/// Runs with `make prove` and `PROVE_ONLY=simulation`: seeds from `PROVE_SEED` on, at least one, for `PROVE_MINUTES`.
#[test]
#[ignore = "for `make prove`"]
fn seeds_for_as_long_as_asked() {
    let set = |name: &str| env::var(name).ok();
    let first: u64 =
        set("PROVE_SEED").map_or(SEEDS + 1, |seed| seed.parse().expect("PROVE_SEED is a number"));
    let minutes: f64 =
        set("PROVE_MINUTES").map_or(5.0, |time| time.parse().expect("PROVE_MINUTES is a number"));
    let until = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let (mut seed, mut served, mut faults) = (first, 0, 0);
    loop {
        let end = hold(seed);
        (seed, served, faults) = (seed + 1, served + end.served, faults + end.faults);
        if minutes <= 0.0 {
            println!("{}\ntrace {}", end.text, end.hash);
        }
        if Instant::now() >= until {
            break;
        }
    }
    println!("seeds {first} to {}: {served} answers, {faults} faults, every promise kept", seed - 1);
}
