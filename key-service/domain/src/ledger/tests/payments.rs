//! Tests payments and refunds: each counts once for its id, and none takes what is used or held.

use shared::wire::{MAX_LIMIT, Raise};

use super::*;
use crate::payment::PaymentId;

const WALLET: u8 = 0;

fn id(text: &str) -> PaymentId {
    PaymentId::parse(text).unwrap()
}

fn pay(payment: &str, amount: i64, to: PaidTo) -> Command {
    let payment_id = id(payment);
    Command::Deposit {
        id: payment_id.deposit(account(MINE)),
        amount: nanos(amount),
        note: String::new(),
        payment_id: Some(payment_id),
        to,
        actor: Actor::System,
    }
}

fn refund(payment: &str, amount: i64, from: PaidTo, partial: bool) -> Command {
    let payment_id = id(payment);
    Command::Refund {
        id: payment_id.deposit(account(MINE)),
        payment_id,
        amount: nanos(amount),
        from,
        partial,
        of: PaymentId::parse("pay_1"),
        note: String::new(),
        actor: Actor::System,
    }
}

fn wallet() -> PaidTo {
    PaidTo::Wallet(group(WALLET))
}

fn both() -> PaidTo {
    PaidTo::Both(group(WALLET))
}

/// Returns a book with this credit, whose key is in a group with this limit.
fn book_of_group(credit: i64, limit: Option<i64>) -> Book {
    let mut book = Book::new(credit, None);
    book.join(WALLET);
    book.group_mut(WALLET).budget.limit = limit.map(nanos);
    book
}

/// Returns the account's credit, the group's limit, and the opening and paid amounts of its wallet.
fn state(book: &mut Book) -> (i64, i64, Option<(i64, i64)>) {
    let credit = book.world.accounts[&account(MINE)].credit.nanos();
    let group = book.group_mut(WALLET);
    let wallet = group.wallet.map(|wallet| (wallet.opening.nanos(), wallet.paid.nanos()));
    (credit, group.budget.limit.unwrap().nanos(), wallet)
}

/// Returns what a command changed: the credit or the wallet, the shortfall, and whether it took effect now.
fn done(outcome: Result<Outcome, Refused>) -> (i64, i64, bool) {
    match outcome {
        Ok(Outcome::Deposited { deposited, is_new }) => {
            (deposited.change().nanos(), deposited.shortfall().nanos(), is_new)
        }
        other => panic!("not done: {other:?}"),
    }
}

fn told(book: &Book) -> Vec<&'static str> {
    book.world.events[&account(MINE)].iter().skip(1).map(|told| told.event.kind.as_str()).collect()
}

#[test]
fn a_payment_raises_the_credit_the_wallet_or_both_in_one_step() {
    let mut book = book_of_group(1_000, Some(30));
    assert_eq!(done(book.run(&pay("pay_1", 100, PaidTo::Account))), (100, 0, true));
    assert_eq!(state(&mut book), (1_100, 30, None));
    assert_eq!(done(book.run(&pay("pay_2", 50, wallet()))), (50, 0, true));
    assert_eq!(state(&mut book), (1_100, 80, Some((30, 50))));
    assert_eq!(done(book.run(&pay("pay_3", 7, both()))), (7, 0, true));
    assert_eq!(state(&mut book), (1_107, 87, Some((30, 57))));
    for again in [pay("pay_1", 100, PaidTo::Account), pay("pay_2", 50, wallet()), pay("pay_3", 7, both())] {
        assert!(!done(book.run(&again)).2);
    }
    assert_eq!(state(&mut book), (1_107, 87, Some((30, 57))));
    assert_eq!(told(&book), ["credit.added", "group.paid", "credit.added"]);
    let groups = book.world.events[&account(MINE)].iter().map(|told| told.event.group);
    assert_eq!(groups.collect::<Vec<_>>(), [None, None, Some(group(WALLET)), Some(group(WALLET))]);
}

#[test]
fn an_id_is_used_for_one_amount_one_place_and_one_kind() {
    let mut book = book_of_group(1_000, Some(0));
    book.run(&pay("pay_1", 100, both())).unwrap();
    let before = state(&mut book);
    let earlier = PaymentTerms { amount: nanos(100), to: both(), is_refund: false };
    for other in [
        pay("pay_1", 101, both()),
        pay("pay_1", 100, wallet()),
        pay("pay_1", 100, PaidTo::Account),
        pay("pay_1", 100, PaidTo::Both(group(2))),
        refund("pay_1", 100, both(), true),
    ] {
        assert_eq!(book.run(&other), Err(Refused::DepositDiffers { earlier }), "{other:?}");
    }
    // A repeated refund must have the same terms, even if the first one took nothing.
    book.must_hold(1, 100);
    assert_eq!(done(book.run(&refund("re_1", 40, both(), true))), (0, 40, true));
    let earlier = PaymentTerms { amount: nanos(40), to: both(), is_refund: true };
    for other in
        [refund("re_1", 41, both(), true), refund("re_1", 40, wallet(), true), pay("re_1", 40, both())]
    {
        assert_eq!(book.run(&other), Err(Refused::DepositDiffers { earlier }), "{other:?}");
    }
    assert_eq!(done(book.run(&refund("re_1", 40, both(), false))), (0, 40, false));
    assert_eq!(state(&mut book), before);
}

#[test]
fn a_refund_takes_at_most_what_is_neither_used_nor_held() {
    let mut book = book_of_group(1_000, Some(0));
    book.run(&pay("pay_1", 300, wallet())).unwrap();
    book.must_hold(1, 100);
    book.capture(1, cost(80));
    book.must_hold(2, 50);
    let before = book.world.clone();
    let available = nanos(300 - 80 - 50);
    let too_low = Err(Refused::CreditTooLow { available });
    assert_eq!(book.run(&refund("re_1", 171, wallet(), false)), too_low);
    assert_eq!(book.world, before, "a refused refund leaves its id free");
    assert_eq!(done(book.run(&refund("re_1", 171, wallet(), true))), (-170, 1, true));
    assert_eq!(done(book.run(&refund("re_1", 171, wallet(), true))), (-170, 1, false));
    assert_eq!(state(&mut book), (920, 130, Some((0, 130))));
    // The held amount can still be billed, and nothing more.
    assert_eq!(book.capture(2, cost(60)).charged, nanos(50));
    assert_eq!(book.hold(3, 1, 1, 1), Err(Refused::LimitReached { level: Level::Group, resets_at: None }));
    // The wallet has less than the credit, so it limits a refund from both.
    let too_low = Err(Refused::CreditTooLow { available: nanos(0) });
    assert_eq!(book.run(&refund("re_2", 1, both(), false)), too_low);
    book.run(&pay("pay_2", 5_000, wallet())).unwrap();
    let credit = book.world.accounts[&account(MINE)].credit.nanos();
    assert_eq!(done(book.run(&refund("re_3", 6_000, both(), true))), (-credit, 6_000 - credit, true));
    assert_eq!(state(&mut book).0, 0);
}

#[test]
fn a_refund_of_credit_leaves_what_is_held() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 100);
    assert_eq!(done(book.run(&refund("re_1", 1_000, PaidTo::Account, true))), (-900, 100, true));
    assert_eq!(book.capture(1, cost(120)).charged, nanos(100));
    assert_eq!(book.sums(), (0, 0, 100));
}

#[test]
fn an_overdraft_moves_with_the_limit_and_is_not_refunded() {
    let mut book = book_of_group(1_000, Some(0));
    let until = after(60);
    book.bound_group(
        WALLET,
        &BoundsPatch {
            limit_raised: Some(Some(Raise { amount: nanos(10), until })),
            ..BoundsPatch::default()
        },
    );
    book.must_hold(1, 8);
    book.capture(1, cost(8));
    book.run(&pay("pay_1", 100, wallet())).unwrap();
    let left = |book: &mut Book, now| book.group_mut(WALLET).budget.left(now).nanos();
    assert_eq!((left(&mut book, START), left(&mut book, until)), (102, 92));
    assert_eq!(done(book.run(&refund("re_1", 100, wallet(), true))), (-92, 8, true));
    assert_eq!((left(&mut book, START), left(&mut book, until)), (10, 0));
    // Once the raise has ended, no payment brings it back, even if the clock then steps back.
    book.now = until;
    book.run(&pay("pay_2", 50, wallet())).unwrap();
    assert_eq!(left(&mut book, START), 50);
}

#[test]
fn a_group_without_a_limit_an_archived_and_an_unknown_one_take_no_payment() {
    let mut book = book_of_group(1_000, None);
    for command in [pay("pay_1", 5, wallet()), pay("pay_1", 5, both()), refund("re_1", 5, wallet(), true)] {
        assert_eq!(book.run(&command), Err(Refused::NoLimit));
    }
    let nowhere = PaidTo::Both(group(9));
    for command in [pay("pay_1", 5, nowhere), refund("re_1", 5, nowhere, true)] {
        assert_eq!(book.run(&command), Err(Refused::UnknownGroup));
    }
    book.group_mut(WALLET).budget.limit = Some(nanos(20));
    book.world.archive(account(MINE), group(WALLET), START);
    assert_eq!(book.run(&pay("pay_1", 5, both())), Err(Refused::GroupArchived));
    assert_eq!(done(book.run(&refund("re_1", 5, wallet(), false))), (-5, 0, true));
    assert_eq!(state(&mut book), (1_000, 15, Some((20, -5))));
}

#[test]
fn neither_the_credit_nor_a_limit_passes_its_maximum() {
    let mut book = book_of_group(1_000, Some(0));
    let rest = MAX_LIMIT.nanos();
    assert_eq!(book.run(&pay("pay_1", rest + 1, wallet())), Err(Refused::LimitTooHigh));
    assert_eq!(book.run(&pay("pay_1", NanoUsd::MAX.nanos(), both())), Err(Refused::BadDeposit));
    for amount in [0, -1] {
        assert_eq!(book.run(&pay("pay_1", amount, wallet())), Err(Refused::BadDeposit));
        assert_eq!(book.run(&refund("re_1", amount, wallet(), true)), Err(Refused::BadDeposit));
    }
    book.bound_group(
        WALLET,
        &BoundsPatch {
            limit_raised: Some(Some(Raise { amount: nanos(1), until: after(60) })),
            ..BoundsPatch::default()
        },
    );
    assert_eq!(book.run(&pay("pay_1", rest, wallet())), Err(Refused::LimitTooHigh));
    assert_eq!(done(book.run(&pay("pay_1", rest - 1, wallet()))), (rest - 1, 0, true));
}

#[test]
fn a_refund_tells_the_thresholds_that_it_passes_and_a_payment_starts_them_again() {
    let mut book = book_of_group(1, Some(0));
    book.run(&pay("pay_1", 1_000, both())).unwrap();
    book.must_hold(1, 100);
    book.capture(1, cost(100));
    book.run(&refund("re_1", 800, both(), false)).unwrap();
    let passed = ["credit.added", "credit.refunded", "group.threshold_reached", "credit.threshold_reached"];
    assert_eq!(told(&book), passed, "half of the limit is used, and a tenth of the credit is left");
    book.run(&pay("pay_2", 100, PaidTo::Account)).unwrap();
    book.run(&refund("re_2", 100, wallet(), false)).unwrap();
    let all = ["credit.added", "group.refunded"].iter().chain(&["group.threshold_reached"; 2]);
    assert_eq!(told(&book)[4..], all.chain(&["group.limit_reached"]).copied().collect::<Vec<_>>());
}

#[test]
fn only_payments_and_refunds_change_the_limit_of_a_wallet() {
    let mut book = book_of_group(1_000, Some(5));
    let change = |limit: Option<i64>| BoundsPatch::of_limit(limit.map(nanos));
    assert_eq!(book.group_mut(WALLET).paid_limit(&change(Some(9))), None);
    book.run(&pay("pay_1", 10, wallet())).unwrap();
    for limit in [Some(14), Some(16), Some(0), None] {
        assert_eq!(book.group_mut(WALLET).paid_limit(&change(limit)), Some(nanos(15)));
    }
    assert_eq!(book.group_mut(WALLET).paid_limit(&change(Some(15))), None);
    assert_eq!(book.group_mut(WALLET).paid_limit(&BoundsPatch::default()), None);
}
