//! Cases about deposits: each deposit counts once, and a payment is a deposit that can be sent again.

use shared::ids::DepositId;

use crate::{
    store::{Deposit, Error, Funds, Ledger as _, Order},
    suite::{
        Subject, act, after, execute_one, hold, make_key, nanos, new_group, nouns::steps::kept,
        open_account_with,
    },
};
use domain::{
    event::{Actor, EventKind},
    governed,
    group::GroupPatch,
    ledger::{
        BoundsPatch, Command, Deposited, Outcome, PaidTo, PaymentTerms, Refused, Wallet,
        histories::{self, START, credit_after, generation},
    },
    payment::{Payment, PaymentId},
};

pub(crate) async fn funds_and_deposits_are_those_of_the_account(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    open_account_with(store, 2, 77).await;
    let key = make_key(store, account, 1, None).await;
    // Each deposit counts once, even if the command is sent again.
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
            to: PaidTo::Account,
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
        let (note, payment, wallet, refund) = (note.to_owned(), None, None, None);
        Deposit { id, deposited: Deposited { amount, credit, note, payment, wallet, refund } }
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
        to: PaidTo::Account,
        actor: Actor::System,
    };
    let added = Some(nanos(1_005));
    // The payment is sent twice in one call, and again later, when the credit is different.
    let twice = vec![send(5), send(5), send(6)];
    let outcomes = store.execute(account, twice, after(9)).await.unwrap();
    let earlier = PaymentTerms { amount: nanos(5), to: PaidTo::Account, is_refund: false };
    let differs = Err(Refused::DepositDiffers { earlier });
    assert_eq!((credit_after(&outcomes[0]), credit_after(&outcomes[1])), (added, added));
    assert_eq!(outcomes[2], differs);
    let other = DepositId::new(after(8), [1; 10]);
    let more = Command::Deposit {
        id: other,
        amount: nanos(10),
        note: String::new(),
        payment_id: None,
        to: PaidTo::Account,
        actor: Actor::System,
    };
    store.execute(account, vec![more], after(8)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(credit_after(&execute_one(store, account, send(5)).await), added);
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
        |event| matches!(&event.kind, EventKind::CreditAdded(paid) if paid.payment_id.as_ref() == Some(&payment)),
    );
    let (event, again) = (told.next().unwrap(), told.next());
    assert_eq!((event.at, event.id.created_at(), again), (after(9), after(9), None));
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}

pub(crate) async fn a_wallet_is_paid_and_refunded_in_one_step_with_the_credit(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let mut new = new_group(account, 1);
    new.group.spend.budget.limit = Some(nanos(20));
    let wallet = new.group.id;
    store.create_group(new, None, &act(START)).await.unwrap();
    let id = |text| PaymentId::parse(text).unwrap();
    let (note, actor) = (String::new(), Actor::System);
    let pay = Command::Deposit {
        id: id("pay_1").deposit(account),
        amount: nanos(50),
        note: note.clone(),
        payment_id: Some(id("pay_1")),
        to: PaidTo::Both(wallet),
        actor: actor.clone(),
    };
    let refund = Command::Refund {
        id: id("re_1").deposit(account),
        payment_id: id("re_1"),
        amount: nanos(100),
        from: PaidTo::Wallet(wallet),
        partial: true,
        of: Some(id("pay_1")),
        note,
        actor,
    };
    let nowhere = Command::Deposit {
        id: id("pay_2").deposit(account),
        amount: nanos(1),
        note: String::new(),
        payment_id: Some(id("pay_2")),
        to: PaidTo::Wallet(histories::group(9)),
        actor: Actor::System,
    };
    let commands = vec![pay.clone(), refund.clone(), nowhere];
    let outcomes = store.execute(account, commands, after(1)).await.unwrap();
    assert_eq!(outcomes[2], Err(Refused::UnknownGroup));
    subject.interrupt().await;
    let store = subject.store();
    let again = store.execute(account, vec![pay, refund], after(9)).await.unwrap();
    for (first, again) in outcomes.iter().zip(&again) {
        let (
            Ok(Outcome::Deposited { deposited: first, is_new: true }),
            Ok(Outcome::Deposited { deposited, is_new }),
        ) = (first, again)
        else {
            panic!("{first:?} {again:?}");
        };
        assert_eq!((deposited, is_new), (first, &false));
    }
    let group = store.group(account, wallet).await.unwrap().unwrap().spend;
    assert_eq!(group.budget.limit, Some(nanos(0)));
    assert_eq!(group.wallet, Some(Wallet { opening: nanos(20), paid: nanos(-20) }));
    assert_eq!(store.funds(account).await.unwrap().unwrap().credit, nanos(1_050));
    let ids = |deposits: Vec<Deposit>| deposits.iter().map(|of| of.id).collect::<Vec<_>>();
    let [paid, refunded] = [id("pay_1"), id("re_1")].map(|id| id.deposit(account));
    let all = ids(store.payments(account, None, Order::Ascending, 9).await.unwrap());
    assert!(all.contains(&paid) && all.contains(&refunded) && all.len() == 2, "{all:?}");
    let first = store.deposit(account, all[0]).await.unwrap();
    assert_eq!(ids(store.payments(account, first.as_ref(), Order::Ascending, 9).await.unwrap()), all[1..]);
    assert_eq!(ids(store.payments(account, first.as_ref(), Order::Descending, 9).await.unwrap()), []);
    assert_eq!(ids(store.payments(account, None, Order::Descending, 1).await.unwrap()), all[1..]);
    let deposits = ids(store.deposits(account, 9).await.unwrap());
    assert_eq!(deposits, [paid, histories::deposit(0)], "the credit has not seen the refund of the wallet");
    let patch = |limit| GroupPatch { bounds: BoundsPatch::of_limit(limit), ..GroupPatch::default() };
    for limit in [Some(nanos(1)), None] {
        let refused = store.update_group(account, wallet, patch(limit), &act(after(10))).await;
        assert_eq!(refused, Err(Error::Refused(governed::Refused::LimitIsPaid(nanos(0)))));
    }
    store.update_group(account, wallet, patch(Some(nanos(0))), &act(after(10))).await.unwrap();
    let events = kept(store, account).await;
    let told: Vec<_> = events.iter().map(|event| event.event.kind.as_str()).collect();
    assert_eq!(told, ["credit.added", "group.created", "credit.added", "group.refunded"]);
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}
