//! Accounts that are suspended, restored and closed.

use domain::{
    governed::registry::RegistryRefused,
    ledger::{
        AccountStatus, Command, Outcome, PaidTo, Refused, StandingAct, StandingRefused,
        histories::{START, account, generation, key},
    },
};
use key_service_ledger::{
    names,
    view::{FORM, LATER_FORM},
};

use crate::{
    store::{Error, Ledger as _, Store},
    suite::{Subject, act, after, capture, hold, make_key, nanos, open_account_with},
};

async fn stand(store: &Store, to: &StandingAct) -> Result<(), Error<RegistryRefused>> {
    store.change_standing(account(1), to, &act(after(9))).await
}

fn suspend() -> StandingAct {
    StandingAct::Suspend("unpaid".into())
}

async fn check(store: &Store) -> Result<Outcome, Refused> {
    let check = Command::Check { key: key(1), credential: 0 };
    store.execute(account(1), vec![check], START).await.unwrap().remove(0)
}

/// Returns the types of the account's events.
async fn told(store: &Store) -> Vec<&'static str> {
    let events = store.events_after(account(1), 0, 99).await.unwrap().events;
    let kinds = events.iter().map(|event| event.event.kind.as_str());
    kinds.filter(|kind| kind.starts_with("account.")).collect()
}

pub(crate) async fn a_suspension_holds_from_its_answer_on_and_each_change_leaves_one_event(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    let mine = open_account_with(store, 1, 100).await;
    make_key(store, mine, 1, None).await;
    let holding = hold(key(1), generation(1), 10, 3);
    assert!(store.execute(mine, vec![holding], START).await.unwrap()[0].is_ok());
    for _ in 0..2 {
        assert_eq!(stand(store, &suspend()).await, Ok(()));
        assert_eq!(check(store).await, Err(Refused::AccountSuspended));
    }
    subject.interrupt().await;
    let store = subject.store();
    let more = hold(key(1), generation(2), 10, 3);
    assert_eq!(store.execute(mine, vec![more], START).await.unwrap(), [Err(Refused::AccountSuspended)]);
    let billed = store.execute(mine, vec![capture(key(1), generation(1), 7)], START).await.unwrap();
    assert!(billed[0].is_ok(), "what was held is billed: {billed:?}");
    let found = store.account_by_id(mine).await.unwrap().unwrap();
    assert_eq!((found.status(), found.credit), (AccountStatus::Suspended, nanos(93)));
    assert_eq!(found.labels.suspended_reason.as_deref(), Some("unpaid"));
    let funds = store.funds(mine).await.unwrap().unwrap();
    assert_eq!((funds.standing, funds.suspended_reason.as_deref()), (found.standing, Some("unpaid")));
    for _ in 0..2 {
        assert_eq!(stand(store, &StandingAct::Restore).await, Ok(()));
        assert_eq!(check(store).await, Ok(Outcome::Allowed { models: None }));
    }
    let found = store.account_by_id(mine).await.unwrap().unwrap();
    assert_eq!((found.standing, found.labels.suspended_reason), (None, None));
    assert_eq!(told(store).await, ["account.suspended", "account.restored"]);
    let unknown = store.change_standing(account(2), &suspend(), &act(START)).await;
    assert_eq!(unknown, Err(Error::Refused(RegistryRefused::NotFound)));
}

pub(crate) async fn an_account_with_a_standing_is_refused_by_programs_that_do_not_know_of_it(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    let mine = open_account_with(store, 1, 100).await;
    make_key(store, mine, 1, None).await;
    let form = async || {
        let names = vec![names::account().into()];
        let found = store.read().records_of(&names::space(mine), names).await.unwrap().remove(0);
        found.unwrap().form()
    };
    assert_eq!(form().await, FORM);
    stand(store, &suspend()).await.unwrap();
    assert_eq!(form().await, LATER_FORM);
    // Later commands keep the suspension and its form.
    let deposit = Command::Deposit {
        id: domain::ledger::histories::deposit(7),
        amount: nanos(1),
        note: String::new(),
        payment_id: None,
        to: PaidTo::Account,
        actor: domain::event::Actor::System,
    };
    assert!(store.execute(mine, vec![deposit], START).await.unwrap()[0].is_ok());
    assert_eq!(form().await, LATER_FORM);
    stand(store, &StandingAct::Restore).await.unwrap();
    assert_eq!(form().await, FORM);
}

pub(crate) async fn an_account_with_money_is_not_closed(subject: &mut impl Subject) {
    let store = subject.store();
    let mine = open_account_with(store, 1, 100).await;
    make_key(store, mine, 1, None).await;
    let refused = |refused| Err(Error::Refused(RegistryRefused::Standing(refused)));
    assert_eq!(stand(store, &StandingAct::Close).await, refused(StandingRefused::Active));
    stand(store, &suspend()).await.unwrap();
    let money = StandingRefused::HasMoney { credit: nanos(100), held: nanos(0) };
    assert_eq!(stand(store, &StandingAct::Close).await, refused(money));
    stand(store, &StandingAct::Restore).await.unwrap();
    let spending = vec![hold(key(1), generation(1), 100, 3), capture(key(1), generation(1), 100)];
    assert!(store.execute(mine, spending, START).await.unwrap().iter().all(Result::is_ok));
    stand(store, &suspend()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(stand(store, &StandingAct::Close).await, Ok(()));
    }
    assert_eq!(check(store).await, Err(Refused::AccountClosed));
    assert_eq!(stand(store, &StandingAct::Restore).await, refused(StandingRefused::Closed));
    let told = told(store).await;
    assert_eq!(told, ["account.suspended", "account.restored", "account.suspended", "account.closed"]);
    let found = store.account_by_id(mine).await.unwrap().unwrap();
    assert_eq!((found.status(), found.name.as_str()), (AccountStatus::Closed, "Customer 1"));
}
