//! Checks which sets housekeeping drops, and when.

use domain::{
    ledger::histories::{START, account},
    usage::Day,
};

use super::*;
use crate::kept::{EVENTS_KEPT, EventBounds};

const TEN_MINUTES: Duration = Duration::from_mins(10);

const KEPT: Retention = Retention {
    journal_entries: 1,
    events: EventBounds::with_life(EVENTS_KEPT),
    expired: Duration::from_hours(30 * 24),
    usage_days: Some(31),
};

fn part(at: Timestamp) -> u32 {
    names::part(at, names::TEN_MINUTES)
}

fn of_generations(part: u32) -> Set {
    Set { table: names::GENERATIONS, part }
}

#[test]
fn generations_are_dropped_hours_later_and_those_with_open_holds_after_them() {
    let first = part(START) - 1;
    let mut drops = Drops::new(begin(account(1)));
    let hours = |hours| START.plus(Duration::from_hours(hours));
    drops.generations(&BTreeSet::new(), START.plus(SETTLED_KEPT).minus(TEN_MINUTES));
    assert_eq!(drops.sets, []);
    let open = BTreeSet::from([first + 1]);
    let later = START.plus(SETTLED_KEPT).plus(TEN_MINUTES * 2);
    drops.generations(&open, later);
    assert_eq!(drops.sets, [of_generations(first), of_generations(first + 2)]);
    assert_eq!(drops.house.generations, first + 3);
    let mut drops = Drops::new(drops.house);
    drops.generations(&open, hours(6));
    assert!(!drops.sets.contains(&of_generations(first + 1)));
    // The hold is settled, but its capture may be sent again.
    let mut drops = Drops::new(drops.house);
    drops.generations(&BTreeSet::new(), hours(7));
    assert!(!drops.sets.contains(&of_generations(first + 1)));
    drops.generations(&BTreeSet::new(), hours(8));
    assert!(drops.sets.contains(&of_generations(first + 1)));
    assert_eq!(drops.house.held, []);
}

#[test]
fn a_commit_drops_no_more_sets_than_a_backend_can_number() {
    let now = START.plus(Duration::from_hours(24 * 365));
    let mut drops = Drops::new(begin(account(1)));
    let mut dropped = BTreeSet::new();
    loop {
        drops.generations(&BTreeSet::new(), now);
        drops.days(KEPT, Day::of(now));
        assert!(drops.sets.len() <= MOST_DROPS);
        if drops.sets.is_empty() {
            break;
        }
        dropped.extend(drops.sets.iter().copied());
        drops = Drops::new(drops.house);
    }
    let days = |table| dropped.iter().filter(|set| set.table == table).count();
    assert_eq!((days(names::EXPIRED), names::SETS_OF_DAYS.map(days)), (333, [334; 4]));
    assert_eq!(days(names::GENERATIONS), 365 * 24 * 6 - 24 + 1);
}

#[test]
fn sums_are_kept_for_their_days_and_for_good_without_a_bound() {
    let today = Day::of(START).plus(32);
    let mut drops = Drops::new(begin(account(1)));
    drops.days(Retention { usage_days: None, ..KEPT }, today);
    assert_eq!(drops.sets, []);
    drops.days(KEPT, today);
    let part = names::day_part(Day::of(START));
    assert_eq!(drops.sets, names::SETS_OF_DAYS.map(|table| Set { table, part }));
}
