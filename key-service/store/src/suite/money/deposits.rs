//! Cases about deposits: each counts once, and a payment is a deposit that can be sent again.

use shared::ids::DepositId;

use crate::{
    store::{Deposit, Funds, Ledger as _},
    suite::{
        Subject, act, after, execute_one, hold, make_key, nanos, new_group, nouns::steps::kept,
        open_account_with,
    },
};
use domain::{
    event::{Actor, EventKind},
    ledger::{
        Command, Deposited, Outcome, Refused,
        histories::{self, START, generation},
    },
    payment::{Payment, PaymentId},
};

pub(crate) async fn funds_and_deposits_are_those_of_the_account(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    open_account_with(store, 2, 77).await;
    let key = make_key(store, account, 1, None).await;
    // Each counts once, even if its creation is sent again.
    for n in [1, 2, 2] {
        make_key(store, account, n, None).await;
        store.create_group(new_group(account, n), None, &act(START)).await.unwrap();
    }
    store.revoke_key(account, key, &act(START)).await.unwrap();
    let key = make_key(store, account, 3, None).await;
    let later = DepositId::new(after(9), [1; 10]);
    let commands = vec![
        Command::Deposit {
            id: later,
            amount: nanos(5),
            note: "Invoice 7 – März".into(),
            payment_id: None,
            actor: Actor::System,
        },
        hold(key, generation(1), 100, 7),
    ];
    store.execute(account, commands, after(9)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let (credit, held) = (nanos(1_005), nanos(100));
    let funds = Funds {
        name: "Customer 1".into(),
        credit,
        held,
        keys: 3,
        groups: 2,
        has_refused: false,
        standing: None,
        suspended_reason: None,
    };
    assert_eq!(store.funds(account).await.unwrap(), Some(funds));
    assert_eq!(store.funds(histories::account(9)).await.unwrap(), None);
    let deposit = |id, amount, credit, note: &str| {
        let (amount, credit) = (nanos(amount), Some(nanos(credit)));
        Deposit { id, deposited: Deposited { amount, credit, note: note.to_owned(), payment: None } }
    };
    let latest = deposit(later, 5, 1_005, "Invoice 7 – März");
    let first = deposit(histories::deposit(0), 1_000, 1_000, "");
    assert_eq!(store.deposits(account, 9).await.unwrap(), [latest.clone(), first]);
    assert_eq!(store.deposits(account, 1).await.unwrap(), [latest]);
}

pub(crate) async fn a_payment_is_added_once_and_tells_when(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let payment = PaymentId::parse("Rechnung 7/2026").unwrap();
    let send = |amount| Command::Deposit {
        id: payment.deposit(account),
        amount: nanos(amount),
        note: "two months".into(),
        payment_id: Some(payment.clone()),
        actor: Actor::System,
    };
    let added = Ok(Outcome::Deposited(nanos(1_005)));
    // It is sent twice in one call with others, and again later, when the credit is different.
    let twice = vec![send(5), send(5), send(6)];
    let outcomes = store.execute(account, twice, after(9)).await.unwrap();
    let differs = Err(Refused::DepositDiffers { earlier: nanos(5) });
    assert_eq!(outcomes, [added.clone(), added.clone(), differs.clone()]);
    let other = DepositId::new(after(8), [1; 10]);
    let more = Command::Deposit {
        id: other,
        amount: nanos(10),
        note: String::new(),
        payment_id: None,
        actor: Actor::System,
    };
    store.execute(account, vec![more], after(8)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(execute_one(store, account, send(5)).await, added);
    assert_eq!(execute_one(store, account, send(4)).await, differs);
    let deposits = store.deposits(account, 9).await.unwrap();
    let times: Vec<_> = deposits.iter().map(|deposit| (deposit.id, deposit.at())).collect();
    let first = histories::deposit(0);
    assert_eq!(times, [(payment.deposit(account), after(9)), (other, after(8)), (first, first.created_at())]);
    let deposited = deposits[0].deposited.clone();
    assert_eq!((deposited.amount, deposited.credit), (nanos(5), Some(nanos(1_005))));
    assert_eq!(deposited.note, "two months");
    assert_eq!(deposited.payment, Some(Payment { id: payment.clone(), at: after(9) }));
    assert_eq!(store.funds(account).await.unwrap().unwrap().credit, nanos(1_015));
    let events = kept(store, account).await;
    let mut told = events.iter().map(|event| &event.event).filter(
        |event| matches!(&event.kind, EventKind::CreditAdded { payment_id: Some(id), .. } if *id == payment),
    );
    let (event, again) = (told.next().unwrap(), told.next());
    assert_eq!((event.at, event.id.created_at(), again), (after(9), after(9), None));
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}
