//! Tests the maximum number of objects in an account.

use shared::money::NanoUsd;

use crate::{
    access::management_keys::{MAX_MANAGEMENT_KEYS, ManagementKeyRefused, ManagementKeySettings},
    accounts::payments::NewDeposit,
    members::{MAX_MEMBERS, MemberRefused, SignInClient, sessions::MAX_SESSIONS},
    testing::Office,
};
use domain::{
    event::Actor,
    member::{LinkMaker, Role},
};
use key_service_store::store::{Error, StoreError};

#[tokio::test]
async fn an_account_has_a_hundred_members_and_management_keys_at_most() {
    let office = Office::open();
    let management = &office.management;
    let account = office.account("acme").await.0;
    for n in 0..MAX_MEMBERS {
        management.invite(account, &format!("member {n}"), Role::Viewer, Actor::System).await.unwrap();
    }
    let refused = management.invite(account, "one more", Role::Viewer, Actor::System).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(MemberRefused::TooMany)), "{refused}");
    for n in 1..MAX_MANAGEMENT_KEYS {
        management
            .create_management_key(account, ManagementKeySettings::full(&format!("key {n}")), Actor::System)
            .await
            .unwrap();
    }
    let refused = management
        .create_management_key(account, ManagementKeySettings::full("one more"), Actor::System)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Refused(ManagementKeyRefused::TooMany)), "{refused}");
}

#[tokio::test]
async fn a_member_that_signs_in_again_and_again_keeps_its_latest_sessions() {
    let office = Office::open();
    let management = &office.management;
    let account = office.account("acme").await.0;
    let (member, mut link) = management.invite(account, "ann", Role::Owner, Actor::System).await.unwrap();
    let mut tokens = Vec::new();
    for _ in 0..MAX_SESSIONS + 3 {
        tokens.push(management.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap().token);
        link = management.sign_in_link(account, &member, LinkMaker::Operator).await.unwrap();
    }
    assert_eq!(management.sessions(account, member.id).await.unwrap().len(), MAX_SESSIONS);
    for (n, token) in tokens.iter().enumerate() {
        assert_eq!(management.session(token).await.unwrap().is_some(), n >= 3, "session {n}");
    }
}

#[tokio::test]
async fn a_store_that_is_nearly_full_takes_no_accounts_credit_members_links_or_management_keys() {
    let office = Office::open();
    let management = &office.management;
    let account = office.account("acme").await.0;
    let (ann, link) = management.invite(account, "ann", Role::Owner, Actor::System).await.unwrap();
    office.records.set_nearly_full(true);
    let refused = management.invite(account, "bob", Role::Viewer, Actor::System).await.unwrap_err();
    assert!(matches!(refused, Error::Store(StoreError::Full)), "{refused}");
    let refused = management.sign_in_link(account, &ann, LinkMaker::Operator).await.unwrap_err();
    assert!(matches!(refused, Error::Store(StoreError::Full)), "{refused}");
    let refused = management
        .create_management_key(account, ManagementKeySettings::full("more"), Actor::System)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::Store(StoreError::Full)), "{refused}");
    let refused = management.create_account("other", NanoUsd::ZERO, Actor::System).await.unwrap_err();
    assert!(matches!(refused, Error::Store(StoreError::Full)), "{refused}");
    let refused =
        management.deposit(account, NewDeposit::of(NanoUsd::from_usd(1)), Actor::System).await.unwrap_err();
    assert!(matches!(refused, Error::Store(StoreError::Full)), "{refused}");
    // Even if the store is full, members can sign in with a link.
    management.sign_in_with_link(&link, "", SignInClient::default()).await.unwrap();
    assert_eq!(management.members(account).await.unwrap().len(), 1);
}
