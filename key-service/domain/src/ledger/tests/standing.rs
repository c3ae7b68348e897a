//! Accounts that are suspended, restored and closed.

use super::*;

fn suspend() -> StandingAct {
    StandingAct::Suspend("unpaid".into())
}

#[test]
fn a_suspended_account_spends_nothing_more_and_is_billed_what_it_held() {
    let mut book = Book::new(1_000, None);
    book.must_hold(1, 100);
    book.must_hold(2, 50);
    book.stand(&suspend()).unwrap();
    assert_eq!(book.check(), Err(Refused::AccountSuspended));
    assert_eq!(book.hold(3, 1, 1, 1), Err(Refused::AccountSuspended));
    let extended = Ok(Outcome::Extended { amount: nanos(100), revoked_by: Some(Refusal::AccountSuspended) });
    assert_eq!(book.extend(1, 300, cost(60)), extended);
    assert_eq!(book.capture(1, cost(60)).charged, nanos(60));
    assert_eq!(book.release(2), Ok(Outcome::Released));
    assert_eq!(book.sums(), (940, 0, 60));
    book.stand(&StandingAct::Restore).unwrap();
    book.must_hold(3, 940);
}

#[test]
fn a_suspended_account_takes_deposits_and_a_closed_one_none() {
    let mut book = Book::new(10, None);
    let deposit = |n: u8, amount| Command::Deposit {
        id: deposit(n),
        amount: nanos(amount),
        note: String::new(),
        payment_id: None,
        to: PaidTo::Account,
        actor: Actor::System,
    };
    book.stand(&suspend()).unwrap();
    assert_eq!(credit_after(&book.run(&deposit(1, 5))), Some(nanos(15)));
    book.stand(&StandingAct::Restore).unwrap();
    book.must_hold(1, 15);
    book.capture(1, cost(15));
    book.stand(&suspend()).unwrap();
    book.stand(&StandingAct::Close).unwrap();
    assert_eq!(book.run(&deposit(2, 5)), Err(Refused::AccountClosed));
    assert_eq!(credit_after(&book.run(&deposit(1, 5))), Some(nanos(15)), "sent again");
    assert_eq!(book.sums(), (0, 0, 15));
}

#[test]
fn only_a_suspended_account_without_money_is_closed_and_then_for_good() {
    let mut book = Book::new(100, None);
    assert_eq!(book.stand(&StandingAct::Close), Err(StandingRefused::Active));
    book.must_hold(1, 100);
    book.stand(&suspend()).unwrap();
    let money = |credit, held| Err(StandingRefused::HasMoney { credit: nanos(credit), held: nanos(held) });
    assert_eq!(book.stand(&StandingAct::Close), money(100, 100));
    book.capture(1, cost(40));
    assert_eq!(book.stand(&StandingAct::Close), money(60, 0));
    book.stand(&StandingAct::Restore).unwrap();
    book.must_hold(2, 60);
    book.capture(2, cost(60));
    assert_eq!(book.stand(&StandingAct::Close), Err(StandingRefused::Active), "nobody spends meanwhile");
    book.stand(&suspend()).unwrap();
    let suspended = book.world.accounts[&account(MINE)];
    book.now = after(5);
    book.stand(&suspend()).unwrap();
    assert_eq!(book.world.accounts[&account(MINE)], suspended, "a repetition changes nothing");
    book.stand(&StandingAct::Close).unwrap();
    let closed = book.world.accounts[&account(MINE)];
    let standing = Standing { suspended_at: START, closed_at: Some(after(5)) };
    assert_eq!(closed.standing, Some(standing));
    book.now = after(6);
    book.stand(&StandingAct::Close).unwrap();
    assert_eq!(book.world.accounts[&account(MINE)], closed, "a repetition changes nothing");
    for act in [suspend(), StandingAct::Restore] {
        assert_eq!(book.stand(&act), Err(StandingRefused::Closed));
    }
}
