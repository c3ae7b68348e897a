//! Short scenarios of the ledger.

mod book;
mod chain;
mod payments;
mod properties;
mod raises;
mod rates;
mod rotation;
mod standing;
mod thresholds;
mod windows;

use crate::{
    event::Actor,
    usage::{Counts, added},
};
use std::time::Duration;

use shared::{ids::GenerationId, refusal::Refusal, time::Timestamp, tokens::Usage};

use self::book::Book;
use super::{
    histories::{
        KEY_LIMIT_REACHED, START, World, account, credit_after, deposit, generation, group, held, key,
        new_hold,
    },
    *,
};

const MINE: u8 = 0;

fn nanos(n: i64) -> NanoUsd {
    NanoUsd::from_nanos(n)
}

fn after(seconds: u64) -> Timestamp {
    START.plus(Duration::from_secs(seconds))
}

fn cost(n: i64) -> Progress {
    Progress { usage: Usage::of(3, 1, n.unsigned_abs()), cost: nanos(n), upstream_cost: None, course: None }
}

fn capture(generation: GenerationId, total: Progress) -> Command {
    let (key, model) = (key(0), "Model Flash".into());
    Command::Capture { key, generation, model, total, chargeable: None, estimated: false }
}

#[test]
fn a_hold_sets_money_aside_and_a_capture_takes_what_it_cost() {
    let mut book = Book::new(1_000, None);
    assert_eq!(book.hold(1, 100, 200, 300), Ok(held(nanos(300))));
    assert_eq!(book.sums(), (1_000, 300, 0));
    let settlement = book.capture(1, cost(250));
    assert_eq!((settlement.charged, settlement.shortfall()), (nanos(250), nanos(0)));
    assert_eq!(settlement.ending, Ending::Captured);
    assert_eq!(book.sums(), (750, 0, 250));
    assert_eq!(book.key_mut().last_used_at, Some(START));
}

#[test]
fn a_hold_takes_less_where_less_is_left_and_waits_where_others_hold_it() {
    let mut book = Book::new(1_000, Some(500));
    assert_eq!(book.hold(1, 100, 200, 9_999), Ok(held(nanos(500))));
    assert_eq!(book.hold(2, 100, 200, 300), Err(Refused::Reserved));
    book.capture(1, cost(350));
    // The rest of 150 is less than `enough`, but no other generation holds any of it, so waiting would not help.
    assert_eq!(book.hold(2, 100, 200, 300), Ok(held(nanos(150))));
}

#[test]
fn what_is_left_and_cannot_pay_is_a_limit_reached_and_never_a_reason_to_wait() {
    let mut book = Book::new(1_000, Some(500));
    assert_eq!(book.hold(1, 501, 501, 501), Err(KEY_LIMIT_REACHED));
    book.set_limit(Some(5_000));
    assert_eq!(book.hold(1, 1_001, 1_001, 1_001), Err(Refused::CreditEmpty));
    book.must_hold(1, 1_000);
    assert_eq!(book.hold(2, 1_001, 1_001, 1_001), Err(Refused::CreditEmpty));
    assert_eq!(book.hold(2, 1_000, 1_000, 1_000), Err(Refused::Reserved));
}

#[test]
fn checks_are_made_in_their_order() {
    let mut book = Book::new(100, Some(100));
    let check = Command::Check { key: key(0), credential: 0 };
    assert_eq!(book.run(&check), Ok(Outcome::Allowed { models: None }));
    book.must_hold(1, 100);
    assert_eq!(book.run(&check), Ok(Outcome::Allowed { models: None }));
    book.capture(1, cost(100));
    book.set_limit(None);
    assert_eq!(book.run(&check), Err(Refused::CreditEmpty));
    book.set_limit(Some(100));
    assert_eq!(book.run(&check), Err(KEY_LIMIT_REACHED));
    book.key_mut().expires_at = Some(book.now);
    assert_eq!(book.run(&check), Err(Refused::KeyExpired));
    book.key_mut().disabled = true;
    assert_eq!(book.run(&check), Err(Refused::KeyDisabled));
    book.stand(&StandingAct::Suspend("unpaid".into())).unwrap();
    assert_eq!(book.run(&check), Err(Refused::AccountSuspended));
    book.stand(&StandingAct::Close).unwrap();
    assert_eq!(book.run(&check), Err(Refused::AccountClosed));
    book.key_mut().revoked_at = Some(book.now);
    assert_eq!(book.run(&check), Err(Refused::Revoked));
    let unknown =
        [(0, 1), (histories::KEYS, 0)].map(|(n, credential)| Command::Check { key: key(n), credential });
    assert_eq!(unknown.map(|check| book.run(&check)), [Err(Refused::UnknownKey), Err(Refused::UnknownKey)]);
}

#[test]
fn what_costs_nothing_needs_nothing_left_over() {
    let mut book = Book::new(100, None);
    book.must_hold(1, 100);
    book.must_hold(2, 0);
    assert_eq!(book.capture(2, cost(0)).charged, nanos(0));
    assert_eq!(book.key_mut().last_used_at, None);
}

#[test]
fn a_release_gives_everything_back() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 300);
    assert_eq!(book.release(1), Ok(Outcome::Released));
    assert_eq!(book.sums(), (1_000, 0, 0));
    assert_eq!(book.release(1), Ok(Outcome::Released));
    assert_eq!(book.sums(), (1_000, 0, 0));
}

#[test]
fn a_capture_whose_hold_is_lost_is_billed_up_to_what_is_available() {
    let mut book = Book::new(1_000, Some(500));
    book.must_hold(2, 100);
    let settlement = book.capture(1, cost(50));
    assert_eq!((settlement.charged, settlement.ending), (nanos(50), Ending::Captured));
    assert_eq!(book.capture(1, cost(50)), settlement);
    assert_eq!(book.sums(), (950, 100, 50));
    // Money held for another generation stays held.
    let settlement = book.capture(3, cost(900));
    assert_eq!((settlement.charged, settlement.shortfall()), (nanos(350), nanos(550)));
    assert_eq!(book.sums(), (600, 100, 400));
}

#[test]
fn no_clock_decides_whether_a_capture_without_a_hold_is_billed() {
    for hours in [-5, 0, 5] {
        let began = Timestamp::from_millis(START.millis() - hours * 60 * 60 * 1_000);
        let mut book = Book::new(1_000, None);
        let captured = book.run(&capture(GenerationId::new(began, [7; 10]), cost(5)));
        let Ok(Outcome::Captured(settlement)) = captured else { panic!("{captured:?}") };
        assert_eq!((settlement.charged, settlement.ending), (nanos(5), Ending::Captured), "{hours}");
        assert_eq!(book.sums(), (995, 0, 5));
    }
}

#[test]
fn a_capture_whose_bill_may_have_been_dropped_charges_and_counts_nothing() {
    let mut book = Book::new(1_000, None);
    let (account, key) = (book.world.accounts[&account(MINE)], Some(book.key_mut().clone()));
    let state = State { account, key, is_forgotten: true, ..State::default() };
    let command = capture(generation(1), cost(5));
    let (after, outcome) = apply(state.clone(), &command, START).unwrap();
    let Outcome::Captured(settlement) = &outcome else { panic!("{outcome:?}") };
    assert_eq!((settlement.charged, settlement.cost), (nanos(0), nanos(5)));
    assert_eq!(settlement.ending, Ending::Late);
    assert_eq!(after.key, state.key);
    let late = entry(&Record::None, &after).unwrap();
    assert_eq!(added(&Record::None, &late).counts, Counts::default());
    assert_eq!(apply(after.clone(), &command, START), Ok((after, outcome)));
}

#[test]
fn the_time_of_a_bill_never_goes_back() {
    let mut book = Book::new(1_000, None);
    let mut bill = |n, second| {
        book.now = after(second);
        book.must_hold(n, 5);
        let settlement = book.capture(n, cost(5));
        assert_eq!(book.key_mut().last_used_at, Some(settlement.at));
        settlement.at
    };
    assert_eq!([bill(1, 10), bill(2, 9), bill(3, 0), bill(4, 11)], [10, 10, 10, 11].map(after));
    book.must_hold(5, 200);
    book.extend(5, 200, cost(120)).unwrap();
    book.tick(3);
    book.now = START;
    let Ok(Outcome::Expired(expired)) = book.expire(5) else { panic!("it is due") };
    let (late, lost) = (book.capture(5, cost(170)), book.capture(9, cost(1)));
    assert_eq!([expired, late, lost].map(|bill| bill.at), [after(11); 3]);
}

#[test]
fn bills_go_back_to_the_clock_once_one_was_days_ahead() {
    let mut book = Book::new(1_000, None);
    let mut bill = |n, now| {
        book.now = now;
        book.must_hold(n, 5);
        book.capture(n, cost(5)).at
    };
    let (ahead, far) = (START.plus(MOST_CARRIED), START.plus(3 * MOST_CARRIED));
    assert_eq!([bill(1, ahead), bill(2, START)], [ahead; 2]);
    assert_eq!(
        [bill(3, far), bill(4, START), bill(5, after(1)), bill(6, START)],
        [far, START, after(1), after(1)]
    );
}

#[test]
fn a_cost_above_its_hold_is_billed_from_what_else_is_left_and_the_rest_is_shortfall() {
    let mut book = Book::new(1_000, Some(700));
    book.must_hold(1, 100);
    book.must_hold(2, 400);
    // 200 of the limit are neither used nor held.
    let settlement = book.capture(1, cost(1_000));
    assert_eq!((settlement.charged, settlement.shortfall()), (nanos(300), nanos(700)));
    assert_eq!(book.sums(), (700, 400, 300));
}

#[test]
fn an_extension_takes_what_is_available_and_never_lowers_a_hold() {
    let mut book = Book::new(1_000, Some(500));
    book.must_hold(1, 100);
    let extended = |amount| Ok(Outcome::Extended { amount: nanos(amount), revoked_by: None });
    assert_eq!(book.extend(1, 300, cost(10)), extended(300));
    assert_eq!(book.extend(1, 50, cost(20)), extended(300));
    assert_eq!(book.extend(1, 9_999, cost(30)), extended(500));
    assert_eq!(book.extend(2, 1, cost(0)), Ok(Outcome::Gone));
}

#[test]
fn a_revoked_key_keeps_its_holds_and_gets_nothing_more() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 100);
    book.key_mut().revoked_at = Some(book.now);
    let extended = Ok(Outcome::Extended { amount: nanos(100), revoked_by: Some(Refusal::InvalidApiKey) });
    assert_eq!(book.extend(1, 300, cost(50)), extended);
    assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::Revoked));
    assert_eq!(book.capture(1, cost(60)).charged, nanos(60));
}

#[test]
fn a_disabled_key_keeps_its_holds_and_gets_nothing_more_until_it_is_enabled_again() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 100);
    book.key_mut().disabled = true;
    let extended = |amount, revoked_by| Ok(Outcome::Extended { amount: nanos(amount), revoked_by });
    assert_eq!(book.extend(1, 300, cost(50)), extended(100, Some(Refusal::KeyDisabled)));
    assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::KeyDisabled));
    book.key_mut().disabled = false;
    assert_eq!(book.extend(1, 300, cost(50)), extended(300, None));
    book.must_hold(2, 100);
    book.key_mut().disabled = true;
    assert_eq!(book.capture(1, cost(60)).charged, nanos(60));
}

#[test]
fn a_limit_lowered_under_what_is_held_stops_new_holds_and_bills_the_old() {
    let mut book = Book::new(1_000, Some(500));
    book.must_hold(1, 400);
    book.set_limit(Some(100));
    assert_eq!(book.hold(2, 1, 1, 1), Err(Refused::Reserved));
    assert_eq!(book.capture(1, cost(450)).charged, nanos(400));
    assert_eq!(book.hold(2, 1, 1, 1), Err(KEY_LIMIT_REACHED));
}

#[test]
fn lease_time_advances_one_tick_after_the_last_one_seen() {
    let mut book = Book::new(1, None);
    let ticked = |tick| Ok(Outcome::Ticked(tick));
    assert_eq!(book.run(&Command::Tick { seen: None }), ticked(0));
    assert_eq!(book.run(&Command::Tick { seen: Some(0) }), ticked(1));
    // Two key-services saw the same tick, and only the first advances it.
    assert_eq!(book.run(&Command::Tick { seen: Some(0) }), ticked(1));
    assert_eq!(book.run(&Command::Tick { seen: Some(7) }), ticked(1));
}

#[test]
fn an_expiry_comes_at_the_end_of_the_lease_and_bills_the_last_report() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 500);
    book.tick(2);
    book.extend(1, 500, cost(120)).unwrap();
    // An older report arrives late.
    book.extend(1, 500, cost(80)).unwrap();
    book.tick(2);
    assert_eq!(book.expire(1), Ok(Outcome::NotDue));
    book.tick(1);
    let Ok(Outcome::Expired(settlement)) = book.expire(1) else { panic!("it is due") };
    assert_eq!((settlement.charged, settlement.ending), (nanos(120), Ending::Expired));
    assert!(settlement.estimated);
    assert_eq!(book.sums(), (880, 0, 120));
    assert_eq!(book.expire(1), Ok(Outcome::Gone));
}

#[test]
fn no_clock_decides_when_a_lease_ends() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 500);
    book.now = after(9_999);
    assert_eq!(book.expire(1), Ok(Outcome::NotDue));
    book.tick(3);
    book.now = START.minus(Duration::from_hours(1));
    assert!(matches!(book.expire(1), Ok(Outcome::Expired(_))));
}

/// Holds 200 for generation 1 and lets the hold expire after a report of this cost.
fn expired(book: &mut Book, reported: i64) {
    book.must_hold(1, 200);
    book.extend(1, 200, cost(reported)).unwrap();
    book.tick(3);
    book.expire(1).unwrap();
}

#[test]
fn a_capture_after_expiry_bills_the_missing_rest_once() {
    let mut book = Book::new(1_000, Some(300));
    expired(&mut book, 120);
    let settlement = book.capture(1, cost(170));
    assert_eq!((settlement.charged, settlement.ending), (nanos(170), Ending::Captured));
    assert!(!settlement.estimated);
    assert_eq!(book.sums(), (830, 0, 170));
    assert_eq!(book.capture(1, cost(9_999)), settlement);
    assert_eq!(book.sums(), (830, 0, 170));
}

#[test]
fn a_capture_after_expiry_gives_back_what_was_billed_too_much() {
    let mut book = Book::new(1_000, Some(300));
    expired(&mut book, 116);
    let settlement = book.capture(1, cost(2));
    assert_eq!((settlement.charged, settlement.cost), (nanos(2), nanos(2)));
    assert_eq!(book.sums(), (998, 0, 2));
    let journal = &book.world.trails[&account(MINE)].journal;
    let balances: Vec<_> = journal.iter().map(|(_, e)| (e.delta.nanos(), e.used_after.nanos())).collect();
    assert_eq!(balances, [(116, 116), (-114, 2)]);
}

#[test]
fn a_capture_after_expiry_bills_no_more_than_is_left() {
    let mut book = Book::new(1_000, Some(250));
    expired(&mut book, 50);
    book.must_hold(2, 120);
    let settlement = book.capture(1, cost(500));
    assert_eq!((settlement.charged, settlement.shortfall()), (nanos(130), nanos(370)));
    assert_eq!(book.sums(), (870, 120, 130));
}

#[test]
fn what_full_credit_cannot_take_back_stays_billed() {
    let mut book = Book::new(1_000, None);
    expired(&mut book, 50);
    let fill = NanoUsd::MAX.left_after(nanos(980));
    book.run(&Command::Deposit {
        id: deposit(9),
        amount: fill,
        note: String::new(),
        payment_id: None,
        to: PaidTo::Account,
        actor: Actor::System,
    })
    .unwrap();
    let settlement = book.capture(1, cost(10));
    assert_eq!((settlement.charged, settlement.cost), (nanos(20), nanos(20)));
    assert_eq!(book.world.accounts[&account(MINE)].credit, NanoUsd::MAX);
}

#[test]
fn a_deposit_counts_once_and_is_above_zero_and_below_the_largest_amount() {
    let mut book = Book::new(1_000, None);
    let deposit = |n, amount| Command::Deposit {
        id: deposit(n),
        amount,
        note: String::new(),
        payment_id: None,
        to: PaidTo::Account,
        actor: Actor::System,
    };
    assert_eq!(credit_after(&book.run(&deposit(0, nanos(1_000)))), Some(nanos(1_000)));
    assert_eq!(book.run(&deposit(1, nanos(0))), Err(Refused::BadDeposit));
    assert_eq!(book.run(&deposit(1, nanos(-1))), Err(Refused::BadDeposit));
    assert_eq!(book.run(&deposit(1, NanoUsd::MAX)), Err(Refused::BadDeposit));
    let rest = NanoUsd::MAX.left_after(nanos(1_000));
    assert_eq!(credit_after(&book.run(&deposit(1, rest))), Some(NanoUsd::MAX));
    // A repeated deposit has the same outcome as the first.
    assert_eq!(credit_after(&book.run(&deposit(0, nanos(1_000)))), Some(nanos(1_000)));
    let earlier = PaymentTerms { amount: nanos(1_000), to: PaidTo::Account, is_refund: false };
    let differs = Refused::DepositDiffers { earlier };
    assert_eq!(book.run(&deposit(0, nanos(999))), Err(differs));
}

#[test]
fn what_ran_on_after_a_cut_is_shortfall_though_money_is_left() {
    let mut book = Book::new(1_000, None);
    let at_most = |n: u8, most: i64| {
        let Command::Capture { key, generation, model, total, estimated, .. } =
            capture(generation(n), cost(130))
        else {
            unreachable!()
        };
        Command::Capture { key, generation, model, total, chargeable: Some(nanos(most)), estimated }
    };
    let charge = |n: u8, most: i64, book: &mut Book| match book.run(&at_most(n, most)) {
        Ok(Outcome::Captured(settlement)) => (settlement.charged.nanos(), settlement.shortfall().nanos()),
        other => panic!("not captured: {other:?}"),
    };
    book.must_hold(1, 100);
    assert_eq!(charge(1, 100, &mut book), (100, 30));
    // The same applies without a hold, and after an expiry.
    assert_eq!(charge(2, 90, &mut book), (90, 40));
    book.must_hold(3, 200);
    book.extend(3, 200, cost(120)).unwrap();
    book.tick(3);
    book.expire(3).unwrap();
    assert_eq!(charge(3, 110, &mut book), (110, 20));
    book.must_hold(4, 200);
    assert_eq!(charge(4, 150, &mut book), (130, 0), "the charge is not above the cost");
    assert_eq!(book.sums(), (1_000 - 430, 0, 430));
}

#[test]
fn what_another_key_holds_cannot_be_touched() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 500);
    book.tick(3);
    let before = book.world.clone();
    let (key, generation) = (key(1), generation(1));
    for command in [
        Command::Release { key, generation },
        Command::Expire { key, generation },
        Command::Capture {
            key,
            generation,
            model: "Model Max".into(),
            total: cost(5),
            chargeable: None,
            estimated: false,
        },
    ] {
        assert_eq!(book.run(&command), Ok(Outcome::Gone));
    }
    assert_eq!(book.world, before);
}
