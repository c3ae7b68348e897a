//! Tests the chain of budgets: key, group, parent.

use shared::refusal::Refusal;

use super::*;

/// Returns a ledger whose key is in group 1, which has group 0 as its parent.
fn book() -> Book {
    let mut book = Book::new(1_000, None);
    book.join(1);
    book
}

fn limit(amount: i64) -> BoundsPatch {
    BoundsPatch { limit: Some(Some(nanos(amount))), ..BoundsPatch::default() }
}

fn reached(level: Level) -> Result<Outcome, Refused> {
    Err(Refused::LimitReached { level, resets_at: None })
}

impl Book {
    /// Returns the used and held amounts of a group.
    fn group_sums(&mut self, n: u8) -> (i64, i64) {
        let budget = &self.group_mut(n).budget;
        (budget.used.nanos(), budget.held.nanos())
    }

    /// Returns the used and held amounts of key, group and parent.
    fn levels(&mut self) -> [(i64, i64); 3] {
        let (_, held, used) = self.sums();
        [(used, held), self.group_sums(1), self.group_sums(0)]
    }
}

#[test]
fn a_hold_is_set_aside_and_billed_at_every_level() {
    let mut book = book();
    book.must_hold(1, 300);
    assert_eq!(book.levels(), [(0, 300); 3]);
    book.extend(1, 400, cost(10)).unwrap();
    assert_eq!(book.levels(), [(0, 400); 3]);
    let settlement = book.capture(1, cost(250));
    assert_eq!(settlement.payer.groups, [Some(group(1)), Some(group(0))]);
    assert_eq!(book.levels(), [(250, 0); 3]);
    book.must_hold(2, 100);
    book.release(2).unwrap();
    assert_eq!(book.levels(), [(250, 0); 3]);
}

#[test]
fn an_expiry_and_its_correction_are_billed_at_every_level() {
    let mut book = book();
    expired(&mut book, 120);
    assert_eq!(book.levels(), [(120, 0); 3]);
    book.capture(1, cost(170));
    assert_eq!(book.levels(), [(170, 0); 3]);
    let mut book = self::book();
    expired(&mut book, 120);
    book.capture(1, cost(20));
    assert_eq!(book.levels(), [(20, 0); 3]);
}

#[test]
fn a_capture_whose_hold_is_lost_is_billed_at_every_level_as_far_as_each_allows() {
    let mut book = book();
    book.bound_group(0, &limit(200));
    let settlement = book.capture(1, cost(300));
    assert_eq!((settlement.charged, settlement.shortfall()), (nanos(200), nanos(100)));
    assert_eq!(settlement.payer.groups, [Some(group(1)), Some(group(0))]);
    assert_eq!(book.levels(), [(200, 0); 3]);
}

#[test]
fn the_tightest_level_bounds_holds_extensions_and_charges() {
    for (key, group, parent) in [(100, 200, 300), (300, 100, 200), (200, 300, 100)] {
        let mut book = book();
        book.bound(&limit(key));
        book.bound_group(1, &limit(group));
        book.bound_group(0, &limit(parent));
        assert_eq!(book.hold(1, 10, 20, 80), Ok(held(nanos(80))));
        let extended = Ok(Outcome::Extended { amount: nanos(100), revoked_by: None });
        assert_eq!(book.extend(1, 9_999, cost(10)), extended);
        assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::Reserved));
        assert_eq!(book.capture(1, cost(9_999)).charged, nanos(100));
    }
}

#[test]
fn keys_of_a_group_share_its_bounds() {
    let mut book = book();
    book.bound_group(0, &limit(100));
    let colleague = key(1);
    book.world.keys.get_mut(&(account(MINE), colleague)).unwrap().group = Some(group(0));
    book.must_hold(1, 60);
    let hold = |n, amount| Command::Hold(new_hold(colleague, generation(n), nanos(amount)));
    assert_eq!(book.run(&hold(2, 41)), Err(Refused::Reserved));
    assert_eq!(book.run(&hold(2, 40)), Ok(held(nanos(40))));
    assert_eq!(book.group_sums(0), (0, 100));
    assert_eq!(book.group_sums(1), (0, 60));
}

#[test]
fn a_refusal_names_the_first_level_that_is_used_up() {
    let mut book = book();
    book.must_hold(1, 1_000);
    book.capture(1, cost(1_000));
    for (n, level) in [(0, Level::Parent), (1, Level::Group)] {
        assert_ne!(book.check(), reached(level));
        book.bound_group(n, &limit(1_000));
        assert_eq!(book.check(), reached(level));
    }
    book.bound(&limit(1_000));
    assert_eq!(book.check(), reached(Level::Key));
    // If what is left cannot pay for the request, the refusals come in the same order.
    let mut book = self::book();
    book.bound_group(0, &limit(50));
    assert_eq!(book.hold(1, 51, 51, 51), reached(Level::Parent));
    book.bound_group(1, &limit(40));
    assert_eq!(book.hold(1, 51, 51, 51), reached(Level::Group));
    assert_eq!(book.hold(1, 41, 41, 41), reached(Level::Group));
    book.bound(&limit(40));
    assert_eq!(book.hold(1, 41, 41, 41), reached(Level::Key));
}

#[test]
fn checks_of_groups_stand_between_those_of_key_and_credit() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 1_000);
    book.capture(1, cost(1_000));
    book.key_mut().group = Some(group(1));
    let parent = book.world.groups.remove(&(account(MINE), group(0))).unwrap();
    assert_eq!(book.check(), Err(Refused::Damaged));
    book.world.groups.insert((account(MINE), group(0)), parent);
    assert_eq!(book.check(), Err(Refused::CreditEmpty));
    book.bound_group(0, &limit(0));
    assert_eq!(book.check(), reached(Level::Parent));
    book.bound_group(1, &limit(0));
    assert_eq!(book.check(), reached(Level::Group));
    book.bound(&limit(0));
    assert_eq!(book.check(), reached(Level::Key));
    book.group_mut(0).archived_at = Some(START);
    assert_eq!(book.check(), Err(Refused::GroupArchived));
    book.key_mut().expires_at = Some(START);
    assert_eq!(book.check(), Err(Refused::KeyExpired));
    book.key_mut().revoked_at = Some(START);
    assert_eq!(book.check(), Err(Refused::Revoked));
}

#[test]
fn an_archived_group_refuses_its_keys_and_those_of_child_groups() {
    for archived in [0, 1] {
        let mut book = book();
        book.must_hold(1, 100);
        book.group_mut(archived).archived_at = Some(START);
        assert_eq!(book.check(), Err(Refused::GroupArchived));
        assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::GroupArchived));
        // Streams are ended, and what they used is billed.
        let revoked = Ok(Outcome::Extended { amount: nanos(100), revoked_by: Some(Refusal::GroupArchived) });
        assert_eq!(book.extend(1, 300, cost(10)), revoked);
        assert_eq!(book.capture(1, cost(20)).charged, nanos(20));
    }
}

#[test]
fn a_moved_key_leaves_open_holds_with_the_groups_they_were_opened_under() {
    let mut book = book();
    book.must_hold(1, 100);
    book.must_hold(2, 100);
    book.must_hold(3, 100);
    book.join(2);
    book.must_hold(4, 10);
    assert_eq!(book.capture(4, cost(10)).payer.groups, [Some(group(2)), None]);
    book.extend(1, 150, cost(5)).unwrap();
    assert_eq!((book.group_sums(1), book.group_sums(2)), ((0, 350), (10, 0)));
    let settlement = book.capture(1, cost(40));
    assert_eq!(settlement.payer.groups, [Some(group(1)), Some(group(0))]);
    book.release(2).unwrap();
    book.extend(3, 0, cost(50)).unwrap();
    book.tick(3);
    book.expire(3).unwrap();
    assert_eq!(book.capture(3, cost(30)).payer.groups, [Some(group(1)), Some(group(0))]);
    assert_eq!(book.group_sums(1), (70, 0));
    assert_eq!(book.group_sums(0), (70, 0));
    assert_eq!(book.group_sums(2), (10, 0));
    assert_eq!(book.sums(), (920, 0, 80));
}

#[test]
fn a_moved_group_leaves_open_holds_with_the_parent_they_were_opened_under() {
    let mut book = book();
    book.must_hold(1, 100);
    book.group_mut(1).parent = Some(group(2));
    book.must_hold(2, 10);
    book.capture(1, cost(60));
    book.capture(2, cost(10));
    assert_eq!([book.group_sums(0), book.group_sums(1), book.group_sums(2)], [(60, 0), (70, 0), (10, 0)]);
}

#[test]
fn only_the_groups_of_its_hold_bound_what_a_generation_costs() {
    let mut book = book();
    book.must_hold(1, 100);
    book.bound_group(2, &limit(0));
    book.join(2);
    assert_eq!(book.check(), reached(Level::Group));
    let extended = Ok(Outcome::Extended { amount: nanos(200), revoked_by: None });
    assert_eq!(book.extend(1, 200, cost(5)), extended);
    assert_eq!(book.capture(1, cost(300)).charged, nanos(300));
}
