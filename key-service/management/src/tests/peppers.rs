//! Tests processes that could not compare their pepper with the store when they started.

use std::{fmt::Debug, sync::Arc, time::Duration};

use shared::key::Prefix;

use crate::{
    Management,
    access::management_keys::ManagementKeySettings,
    nouns::{governed::Governed as _, rotation::RotationTerms},
    testing::Office,
};
use domain::{
    digest::{Pepper, Peppers},
    event::Actor,
    key::{ApiKey, KeyPatch},
};
use key_service_credentials::Credentials;
use key_service_store::store::{Error, StoreError};

/// Returns management over the office's store, as in a process that has just started and has not compared its pepper
/// yet.
fn with_pepper(office: &Office, pepper: u8) -> Management {
    let peppers = Peppers { current: Pepper::new([pepper; 32]), previous: None };
    let credentials = Credentials::new(office.store.clone(), peppers, Prefix::parse("fg").unwrap());
    Management::new(office.store.clone(), office.clock.clone(), Arc::new(credentials))
}

#[tokio::test]
async fn nothing_is_made_with_a_pepper_until_it_is_known_to_be_the_stores() {
    let office = Office::open();
    let (account, _) = office.account("acme").await;
    let by = office.management.by(account, Actor::System);
    let key = ApiKey::create(by, KeyPatch::default(), None).await.unwrap().made.into_inner();
    let attempts = async |management: &Management| {
        let by = || management.by(account, Actor::System);
        let terms = RotationTerms { grace: Duration::ZERO, is_forced: true };
        let settings = ManagementKeySettings::full("more");
        [
            ApiKey::create(by(), KeyPatch::default(), None).await.err().map(unavailable),
            by().rotate(key.id, terms, None).await.err().map(unavailable),
            management.create_management_key(account, settings, Actor::System).await.err().map(unavailable),
        ]
    };
    let wrong = with_pepper(&office, 8);
    for refused in attempts(&wrong).await {
        assert!(refused.is_some_and(|why| why.contains("is not the pepper")));
    }
    assert_eq!(office.management.management_keys(account).await.unwrap().len(), 1);
    assert_eq!(office.store.accounts().await.unwrap()[0].keys, 1);
    let right = with_pepper(&office, 7);
    office.records.fail_after(0);
    assert!(attempts(&right).await.iter().all(Option::is_some), "the record of the pepper cannot be read");
    office.records.fail_after(u64::MAX);
    assert_eq!(attempts(&right).await, [None, None, None]);
}

/// Returns the reason why the store is unavailable.
fn unavailable<R: Debug>(error: Error<R>) -> String {
    match error {
        Error::Store(StoreError::Unavailable(why)) => why,
        other => panic!("{other:?}"),
    }
}
