//! Cases about accounts, credentials and management keys.

use futures_util::future::join_all;
use shared::ids::Principal;

use crate::{
    store::{
        AccountSummary, Capacity as _, Credential, Error, Ledger as _, Made, ManagementKey,
        ManagementKeyNotMade, NewAccount, NewManagementKey, Store, StoreError, layout, operators,
    },
    suite::{
        Subject, act, after, capture, digest, hold, make_key, nanos, new_key,
        nouns::{
            keys::attempt,
            steps::{management_key, member, new_management_key},
        },
        open_account, open_account_with,
    },
};
use domain::{
    access::{Access, Scope},
    ledger::histories::{START, account, generation, group, key},
    settings::AccountLabels,
};

pub(crate) async fn a_name_is_taken_once(subject: &mut impl Subject) {
    let new = |n, name: &str| NewAccount { id: account(n), name: name.into(), created_at: START };
    assert!(subject.store().create_account(new(1, "Grüße")).await.unwrap());
    subject.interrupt().await;
    let store = subject.store();
    assert!(!store.create_account(new(2, "Grüße")).await.unwrap());
    // A caller that has not received the answer repeats the call.
    assert!(store.create_account(new(1, "Grüße")).await.unwrap());
    assert!(store.create_account(new(2, "grüße")).await.unwrap());
    let names: Vec<_> = store.accounts().await.unwrap().into_iter().map(|a| a.name).collect();
    assert_eq!(names, ["Grüße", "grüße"]);
}

pub(crate) async fn an_account_is_found_by_its_name(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.account_named("Customer 1").await.unwrap(), Some(mine));
    assert_eq!(store.account_named("Customer 2").await.unwrap(), Some(theirs));
    for unknown in ["customer 1", "Customer", "Customer 1 ", ""] {
        assert_eq!(store.account_named(unknown).await.unwrap(), None);
    }
    assert!(!store.is_nearly_full().await.unwrap(), "two accounts do not fill a store");
}

pub(crate) async fn accounts_are_listed_oldest_first_with_their_money_and_keys(subject: &mut impl Subject) {
    let store = subject.store();
    let (young, old) = (open_account_with(store, 2, 500).await, open_account(store, 1).await);
    let paying = make_key(store, young, 0, None).await;
    make_key(store, young, 1, None).await;
    store.revoke_key(young, key(1), &act(START)).await.unwrap();
    let commands = vec![
        hold(paying, generation(1), 100, 7),
        hold(paying, generation(2), 70, 7),
        capture(paying, generation(1), 40),
    ];
    store.execute(young, commands, START).await.unwrap();
    subject.interrupt().await;
    let summary = |id, name: &str, credit, held, keys, created_at| AccountSummary {
        id,
        name: name.into(),
        credit: nanos(credit),
        held: nanos(held),
        keys,
        groups: 0,
        labels: AccountLabels::default(),
        standing: None,
        created_at,
    };
    let expected =
        [summary(old, "Customer 1", 0, 0, 0, after(1)), summary(young, "Customer 2", 460, 70, 2, after(2))];
    assert_eq!(subject.store().accounts().await.unwrap(), expected);
}

pub(crate) async fn the_operators_are_no_account_of_the_list_and_their_name_is_free(
    subject: &mut impl Subject,
) {
    for _ in 0..2 {
        subject.store().open_operators(START).await.unwrap();
    }
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.accounts().await.unwrap(), []);
    let name = store.funds(operators()).await.unwrap().unwrap().name;
    assert_eq!(store.account_named(&name).await.unwrap(), None);
    let same = NewAccount { id: account(1), name: name.clone(), created_at: START };
    assert!(store.create_account(same).await.unwrap());
    assert_eq!(store.account_named(&name).await.unwrap(), Some(account(1)));
    assert_eq!(store.account_names().await.unwrap(), [(account(1), name)]);
}

pub(crate) async fn an_account_that_an_operator_makes_begins_with_an_event(subject: &mut impl Subject) {
    let new = || NewAccount { id: account(1), name: "Customer".into(), created_at: START };
    for _ in 0..2 {
        assert!(subject.store().create_account_by(new(), Some(&act(START))).await.unwrap());
    }
    subject.interrupt().await;
    let events = subject.store().events_after(account(1), 0, 9).await.unwrap().events;
    let kinds: Vec<_> = events.iter().map(|event| event.event.kind.as_str()).collect();
    assert_eq!(kinds, ["account.created"], "one event, no matter how often the call is repeated");
}

pub(crate) async fn a_credential_is_found_for_good(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    let (api, management) = (new_key(account, 1), new_management_key(account, 1));
    let (api_digest, management_digest) = (api.digest, management.digest);
    assert_eq!(store.find_credential(api_digest).await.unwrap(), None);
    store.create_key(api, None, &act(START)).await.unwrap();
    store.create_management_key(management, &act(START)).await.unwrap();
    store.revoke_key(account, key(1), &act(START)).await.unwrap();
    store.revoke_management_key(management_key(1).id, &act(START)).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let owner = store.find_credential(api_digest).await.unwrap();
    assert_eq!(owner, Some(Credential::first(Principal::ApiKey(account, key(1)))));
    let owner = store.find_credential(management_digest).await.unwrap();
    assert_eq!(owner, Some(Credential::first(Principal::ManagementKey(account, management_key(1).id))));
    assert_eq!(store.find_credential(digest("nobody's")).await.unwrap(), None);
}

pub(crate) async fn the_record_of_peppers_is_replaced_by_one_of_several_writers(subject: &mut impl Subject) {
    let store = subject.store();
    assert_eq!(store.pepper_record().await.unwrap(), None);
    let replace = async |seen: Option<&str>, record: &str| {
        store.replace_pepper_record(seen.map(str::to_owned), record.to_owned()).await.unwrap()
    };
    assert!(!replace(Some("other"), "a").await, "there is none");
    let first = join_all(["a", "b", "c"].map(|record| replace(None, record))).await;
    assert_eq!(first.iter().filter(|replaced| **replaced).count(), 1);
    let seen = store.pepper_record().await.unwrap();
    assert!(!replace(Some("other"), "d").await && replace(seen.as_deref(), "d").await);
    subject.interrupt().await;
    assert_eq!(subject.store().pepper_record().await.unwrap().as_deref(), Some("d"));
}

pub(crate) async fn management_keys_are_listed_oldest_first_each_with_its_account(
    subject: &mut impl Subject,
) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    for (account, n) in [(mine, 3), (theirs, 2), (mine, 1)] {
        store.create_management_key(new_management_key(account, n), &act(START)).await.unwrap();
    }
    subject.interrupt().await;
    let store = subject.store();
    // A caller that has not received the answer repeats the call.
    store.create_management_key(new_management_key(mine, 3), &act(START)).await.unwrap();
    assert_eq!(store.management_keys(mine).await.unwrap(), [management_key(1), management_key(3)]);
    assert_eq!(store.management_keys(account(9)).await.unwrap(), []);
    let (one, two) = (management_key(1).id, management_key(2).id);
    assert_eq!(store.management_key(mine, one).await.unwrap(), Some(management_key(1)));
    assert_eq!(store.management_key(mine, two).await.unwrap(), None);
    assert_eq!(store.management_key(theirs, two).await.unwrap(), Some(management_key(2)));
}

pub(crate) async fn a_management_key_that_is_not_made_leaves_no_owner_behind(subject: &mut impl Subject) {
    let account = open_account(subject.store(), 1).await;
    let owners = async |store: &Store| {
        let mut owners = 0;
        for part in layout::parts("management-keys") {
            owners += store.all_of_set(&part, layout::MANAGEMENT_KEY_OWNERS).await.unwrap().len();
        }
        owners
    };
    let make = async |store: &Store, n, most, (key, request): (&str, &str)| {
        let new = NewManagementKey { most, ..new_management_key(account, n) };
        store.create_management_key_once(new, Some(attempt(key, request, START)), &act(START)).await
    };
    let store = subject.store();
    let first = management_key(1).id;
    assert_eq!(make(store, 1, 9, ("once", "a")).await, Ok(Made::New(first)));
    assert_eq!(make(store, 2, 9, ("once", "a")).await, Ok(Made::Replayed(first)));
    let reused = Err(Error::Refused(ManagementKeyNotMade::Reused));
    assert_eq!(make(store, 3, 9, ("once", "b")).await, reused);
    let too_many = Err(Error::Refused(ManagementKeyNotMade::TooMany));
    assert_eq!(make(store, 4, 1, ("twice", "a")).await, too_many);
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(owners(store).await, 1);
    assert_eq!(make(store, 1, 9, ("once", "a")).await, Ok(Made::New(first)), "the call is repeated");
    assert!(store.revoke_management_key(first, &act(START)).await.unwrap().is_some());
}

pub(crate) async fn a_management_key_comes_back_with_its_rights(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    let mut keys = Vec::new();
    for (n, scope, group) in
        [(1, Scope::Full, None), (2, Scope::Read, Some(group(7))), (3, Scope::Full, Some(group(8)))]
    {
        let mut new = new_management_key(account, n);
        new.key.access = Access { scope, group };
        new.key.expires_at = group.map(|_| after(99));
        keys.push(new.key.clone());
        store.create_management_key(new, &act(START)).await.unwrap();
    }
    subject.interrupt().await;
    assert_eq!(subject.store().management_keys(account).await.unwrap(), keys);
    assert_eq!(subject.store().management_key(account, keys[1].id).await.unwrap().as_ref(), Some(&keys[1]));
}

pub(crate) async fn a_use_of_a_management_key_is_recorded_once_a_minute(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    for n in [1, 2] {
        store.create_management_key(new_management_key(account, n), &act(START)).await.unwrap();
    }
    let id = management_key(1).id;
    assert!(store.use_management_key(account, id, after(0)).await.unwrap());
    subject.interrupt().await;
    let store = subject.store();
    for (seconds, is_recorded) in [(0, false), (59, false), (60, true), (61, false), (120, true)] {
        let recorded = store.use_management_key(account, id, after(seconds)).await.unwrap();
        assert_eq!(recorded, is_recorded, "after {seconds} s");
    }
    assert!(!store.use_management_key(account, management_key(9).id, after(0)).await.unwrap());
    assert_eq!(store.management_key(account, management_key(9).id).await.unwrap(), None);
    let used = ManagementKey { last_used_at: Some(after(120)), ..management_key(1) };
    assert_eq!(store.management_keys(account).await.unwrap(), [used, management_key(2)]);
}

pub(crate) async fn a_management_key_is_revoked_once(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account(store, 1).await;
    store.create_management_key(new_management_key(account, 1), &act(START)).await.unwrap();
    let id = management_key(1).id;
    let revoked = Some(ManagementKey { revoked_at: Some(after(5)), ..management_key(1) });
    assert_eq!(store.revoke_management_key(id, &act(after(5))).await.unwrap(), revoked);
    subject.interrupt().await;
    let store = subject.store();
    assert_eq!(store.revoke_management_key(id, &act(after(6))).await.unwrap(), revoked);
    assert_eq!(store.management_key(account, id).await.unwrap(), revoked);
    assert_eq!(store.revoke_management_key(management_key(2).id, &act(after(6))).await.unwrap(), None);
}

pub(crate) async fn an_account_has_no_more_management_keys_than_it_may(subject: &mut impl Subject) {
    let store = subject.store();
    let (mine, theirs) = (open_account(store, 1).await, open_account(store, 2).await);
    let new = |account, n| NewManagementKey { most: 2, ..new_management_key(account, n) };
    for n in [1, 2] {
        assert!(store.create_management_key(new(mine, n), &act(START)).await.unwrap());
    }
    store.revoke_management_key(management_key(1).id, &act(after(5))).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    assert!(!store.create_management_key(new(mine, 3), &act(START)).await.unwrap(), "revoked keys count");
    assert_eq!(store.find_credential(new(mine, 3).digest).await.unwrap(), None);
    assert_eq!(store.management_keys(mine).await.unwrap().len(), 2);
    // A caller that has not received the answer repeats the call.
    assert!(store.create_management_key(new(mine, 2), &act(START)).await.unwrap());
    assert!(store.create_management_key(new(theirs, 4), &act(START)).await.unwrap());
    // With a higher maximum, more keys are allowed.
    assert!(
        store.create_management_key(NewManagementKey { most: 3, ..new(mine, 5) }, &act(START)).await.unwrap()
    );
}

pub(crate) async fn what_belongs_to_no_account_is_refused(subject: &mut impl Subject) {
    let store = subject.store();
    let key = store.create_key(new_key(account(1), 1), None, &act(START)).await.unwrap_err();
    let member = store.create_member(account(1), member(1), 9, &act(START)).await.unwrap_err();
    let (Error::Store(key), Error::Store(member)) = (key, member) else { panic!("refused otherwise") };
    let management_key = store.create_management_key(new_management_key(account(1), 1), &act(START)).await;
    let refused = [key, member, management_key.unwrap_err()];
    for error in refused {
        assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
    }
    assert_eq!(store.find_credential(new_key(account(1), 1).digest).await.unwrap(), None);
    assert_eq!(store.find_credential(new_management_key(account(1), 1).digest).await.unwrap(), None);
}
