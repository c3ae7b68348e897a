//! Accounts with external ids: each id gets one account, whoever asks for it and whichever process dies.

use std::future::Future;

use futures_util::{FutureExt, future::join_all};
use shared::{ids::AccountId, wire::MAX_METADATA};

use crate::{
    store::{Error, Made, NewAccount, Store},
    suite::{Subject, act},
};
use domain::{
    governed::registry::RegistryRefused,
    ledger::histories::{START, account},
    settings::{AccountLabels, MetadataPatch},
};

fn new(n: u8, name: &str) -> NewAccount {
    NewAccount { id: account(n), name: name.into(), created_at: START }
}

fn labels(external_id: &str) -> AccountLabels {
    AccountLabels { external_id: Some(external_id.into()), ..AccountLabels::default() }
}

type Opened = Result<Made<AccountId>, Error<RegistryRefused>>;

async fn open(store: &Store, n: u8, name: &str, external_id: &str) -> Opened {
    store.open_account(new(n, name), &labels(external_id), Some(&act(START))).await
}

async fn account_with(store: &Store, external_id: &str) -> Option<AccountId> {
    store.account_with_external_id(external_id).await.unwrap().map(|account| account.id)
}

/// Lets a call take this many steps and then drops it, as if its process had died.
async fn die_after(steps: usize, call: impl Future<Output = Opened>) {
    let mut call = Box::pin(call);
    for _ in 0..steps {
        if call.as_mut().now_or_never().is_some() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

pub(crate) async fn an_external_id_makes_one_account_however_many_ask_at_once(subject: &mut impl Subject) {
    let store = subject.store();
    let calls = (1..=40).map(|n| async move { open(store, n, &format!("Customer {n}"), "cus_1").await });
    let made = join_all(calls).await;
    let new_ones: Vec<_> = made.iter().filter(|made| matches!(made, Ok(Made::New(_)))).collect();
    assert_eq!(new_ones.len(), 1, "{made:?}");
    let Ok(Made::New(id)) = *new_ones[0] else { unreachable!() };
    assert!(made.iter().all(|made| *made == Ok(Made::New(id)) || *made == Ok(Made::Existing(id))));
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(open(store, 50, "Other", "cus_1").await, Ok(Made::Existing(id)));
    let accounts = store.accounts().await.unwrap();
    assert_eq!(accounts.len(), 1);
    assert_eq!(accounts[0].labels, labels("cus_1"));
    let name = accounts[0].name.clone();
    assert_eq!(store.account_names().await.unwrap(), [(id, name)], "no other name is claimed");
    assert_eq!(account_with(store, "cus_1").await, Some(id));
    let events = store.events_after(id, 0, 9).await.unwrap().events;
    assert_eq!(events.len(), 1, "{events:?}");
}

pub(crate) async fn a_call_that_dies_is_finished_by_whoever_repeats_it(subject: &mut impl Subject) {
    for steps in 0..12 {
        let (external_id, name) = (format!("cus_{steps}"), format!("Customer {steps}"));
        let n = u8::try_from(10 * steps).unwrap();
        let store = subject.store();
        let labels = labels(&external_id);
        let acting = act(START);
        die_after(steps, store.open_account(new(n + 1, &name), &labels, Some(&acting))).await;
        subject.interrupt().await;
        let store = subject.store();
        let first = open(store, n + 2, &name, &external_id).await;
        let Ok(Made::New(id) | Made::Existing(id)) = first else { panic!("{steps}: {first:?}") };
        assert_eq!(open(store, n + 3, &name, &external_id).await, Ok(Made::Existing(id)));
        assert_eq!(store.account_named(&name).await.unwrap(), Some(id), "after {steps} steps");
        assert_eq!(account_with(store, &external_id).await, Some(id));
    }
    assert_eq!(subject.store().accounts().await.unwrap().len(), 12);
    assert_eq!(subject.store().account_names().await.unwrap().len(), 12);
}

pub(crate) async fn a_taken_name_leaves_the_external_id_for_a_call_with_another_one(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    assert!(store.create_account(new(1, "Acme")).await.unwrap());
    assert_eq!(
        open(store, 2, "Acme", "cus_1").await,
        Err(Error::Refused(RegistryRefused::NameTaken(account(1))))
    );
    assert_eq!(account_with(store, "cus_1").await, None);
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(open(store, 3, "Acme 2", "cus_1").await, Ok(Made::New(account(2))));
    assert_eq!(store.account_named("Acme 2").await.unwrap(), Some(account(2)));
    assert_eq!(open(store, 4, "Acme 3", "cus_1").await, Ok(Made::Existing(account(2))));
    assert!(store.create_account(new(5, "Acme 3")).await.unwrap(), "the name was never claimed");
}

pub(crate) async fn an_account_takes_one_external_id_that_no_other_has(subject: &mut impl Subject) {
    let store = subject.store();
    assert!(store.create_account(new(1, "One")).await.unwrap());
    assert!(store.create_account(new(2, "Two")).await.unwrap());
    let none = MetadataPatch::default();
    let (acting, store) = (act(START), subject.store());
    let give = async |n, external_id: &str| {
        store.update_account(account(n), Some(external_id), &none, &acting).await
    };
    assert_eq!(give(1, "cus_1").await, Ok(()));
    assert_eq!(give(1, "cus_1").await, Ok(()));
    assert_eq!(give(1, "cus_2").await, Err(Error::Refused(RegistryRefused::ExternalIdFixed)));
    assert_eq!(give(2, "cus_1").await, Err(Error::Refused(RegistryRefused::ExternalIdTaken(account(1)))));
    assert_eq!(give(2, "cus_2").await, Ok(()), "a refused id is free");
    assert_eq!(give(3, "cus_3").await, Err(Error::Refused(RegistryRefused::NotFound)));
    assert_eq!(open(store, 4, "Three", "cus_2").await, Ok(Made::Existing(account(2))));
    let events = store.events_after(account(1), 0, 9).await.unwrap().events;
    assert_eq!(events.len(), 1, "a repetition writes no event");
}

pub(crate) async fn a_refused_change_claims_no_external_id(subject: &mut impl Subject) {
    let store = subject.store();
    assert!(store.create_account(new(1, "One")).await.unwrap());
    let changes = (0..=MAX_METADATA).map(|n| (format!("m{n}"), Some("x".to_owned()))).collect();
    let many = MetadataPatch { is_cleared: false, changes };
    let refused = store.update_account(account(1), Some("cus_1"), &many, &act(START)).await;
    assert_eq!(refused, Err(Error::Refused(RegistryRefused::TooMuchMetadata)));
    assert_eq!(open(store, 2, "Two", "cus_1").await, Ok(Made::New(account(2))));
}
