//! Audits wallets: what payments and refunds recorded proves their limits.

use domain::{
    audit::Stored,
    event::Actor,
    ledger::{Deposited, Group, PaidTo, Record as Generation},
    payment::PaymentId,
};
use key_service_ledger::{names::RecordName, reading::value, stored::Balance, view::FORM};
use minicbor::{Decode, Encode};
use records::{Answer, Question, Record, Revision};

use super::*;

fn id(text: &str) -> PaymentId {
    PaymentId::parse(text).unwrap()
}

/// Opens an account with a wallet of 20, into which 50 were paid and from which 30 were refunded.
async fn open_wallet(store: &Store) {
    let mine = open_account_with(store, 1, 1_000).await;
    let mut new = new_group(mine, 0);
    new.group.spend.budget.limit = Some(nanos(20));
    store.create_group(new, None, &act(START)).await.unwrap();
    let both = PaidTo::Both(group(0));
    let pay = Command::Deposit {
        id: id("pay_1").deposit(mine),
        amount: nanos(50),
        note: String::new(),
        payment_id: Some(id("pay_1")),
        to: both,
        actor: Actor::System,
    };
    let refund = Command::Refund {
        id: id("re_1").deposit(mine),
        payment_id: id("re_1"),
        amount: nanos(30),
        from: both,
        partial: false,
        of: Some(id("pay_1")),
        note: String::new(),
        actor: Actor::System,
    };
    execute(store, vec![pay, refund], START).await;
}

/// Changes a record without the ledger, and returns what an audit then finds.
async fn found<T: Encode<()> + for<'b> Decode<'b, ()>>(
    name: RecordName<T>,
    change: impl FnOnce(&mut T),
) -> Vec<Wrong> {
    let records = Arc::new(Maps::default());
    open_wallet(&store(&records, None)).await;
    assert_eq!(audit(&store(&records, None)).await.wrong, []);
    let (space, questions) = (names::space(account(1)), vec![Question::Records(vec![name.clone().into()])]);
    let Some(Answer::Records(read)) = records.read(&space, questions).await.unwrap().pop() else {
        panic!("records were asked for")
    };
    let mut changed: T = value(read[0].as_ref().unwrap()).unwrap();
    change(&mut changed);
    let writes = vec![Write::Put(name.into(), Record::of(Revision([7; 8]), FORM, &changed))];
    records.commit(&space, Commit { guards: Vec::new(), writes }).await.unwrap();
    audit(&store(&records, None)).await.wrong
}

async fn found_in_group(change: impl FnOnce(&mut Group)) -> Vec<Wrong> {
    found(names::group(group(0)), |balance: &mut Balance<Group>| change(&mut balance.of)).await
}

async fn found_in_refund(change: impl FnOnce(&mut Deposited)) -> Vec<Wrong> {
    let name = names::deposit(id("re_1").deposit(account(1)));
    found(name, |record| match record {
        Generation::Deposited(deposited) => change(deposited),
        other => panic!("{other:?}"),
    })
    .await
}

fn usd(figure: Figure, recorded: i64, proven: i64) -> Wrong {
    Wrong { figure, recorded: Quantity::Usd(nanos(recorded)), proven: Quantity::Usd(nanos(proven)) }
}

#[tokio::test]
async fn a_wallet_that_was_changed_by_hand_is_named() {
    let (paid, limit) = (Figure::Paid(group(0)), Figure::WalletLimit(group(0)));
    let more_paid = found_in_group(|group| group.wallet.as_mut().unwrap().paid = nanos(21)).await;
    assert_eq!(more_paid, [usd(paid.clone(), 21, 20), usd(limit.clone(), 40, 41)]);
    let opened = found_in_group(|group| group.wallet.as_mut().unwrap().opening = nanos(19)).await;
    assert_eq!(opened, [usd(limit.clone(), 40, 39)]);
    assert_eq!(found_in_group(|group| group.budget.limit = Some(nanos(41))).await, [usd(limit, 41, 40)]);
    assert_eq!(found_in_group(|group| group.wallet = None).await, [usd(paid.clone(), 0, 20)]);
    let took_less = found_in_refund(|refund| {
        refund.amount = nanos(-29);
        refund.wallet.as_mut().unwrap().change = nanos(-29);
    });
    assert_eq!(took_less.await, [usd(paid.clone(), 20, 21), usd(Figure::Credit, 1_020, 1_021)]);
    let does_not_fit = Wrong {
        figure: Figure::Stored(Stored::Deposit(id("re_1").deposit(account(1)))),
        recorded: Quantity::Count(0),
        proven: Quantity::Count(1),
    };
    let took_more = found_in_refund(|refund| {
        refund.amount = nanos(-31);
        refund.wallet.as_mut().unwrap().change = nanos(-31);
    });
    let wrong = [usd(paid, 20, 19), does_not_fit.clone(), usd(Figure::Credit, 1_020, 1_019)];
    assert_eq!(took_more.await, wrong, "more than was asked");
    let of_credit_alone = found_in_refund(|refund| refund.amount = nanos(-29)).await;
    assert_eq!(of_credit_alone, [does_not_fit, usd(Figure::Credit, 1_020, 1_021)]);
}
