//! Test helpers for the key-service: a clock that tests set, and an in-memory store.
#![allow(clippy::unwrap_used, reason = "panics are fine as test failures")]

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use shared::{
    clock::{Clock, System},
    ids::AccountId,
    key::Prefix,
    money::NanoUsd,
    secret::ExposeSecret,
    time::Timestamp,
};
use shared_catalog::Catalog;
use shared_config::current::Current;

use crate::{access::management_keys::ManagementKeySettings, management::Management};
use domain::{
    digest::{Pepper, Peppers},
    event::Actor,
};
use key_service_credentials::Credentials;
use key_service_records::Records;
use key_service_store::store::{
    EVENTS_KEPT, Error, EventBounds, Store, StoreRetention,
    suite::{SUITE_EVENTS, Unreliable},
};

/// When every test starts; not a whole second.
pub const BEGIN: &str = "2026-11-20T02:11:05.678Z";

/// Returns a store that keeps everything, except old events if there are very many.
pub fn store_over(records: impl Records) -> Arc<Store> {
    let kept = StoreRetention::all(EventBounds::with_life(EVENTS_KEPT));
    Arc::new(Store::new(Arc::new(records), Arc::new(System), kept))
}

/// Management over an in-memory store, with a clock that tests set.
pub struct Office {
    pub clock: Arc<Script>,
    /// In-memory records that can be made to fail.
    pub records: Arc<Unreliable>,
    pub store: Arc<Store>,
    /// Credentials in the store, with a fixed pepper.
    pub credentials: Arc<Credentials>,
    pub management: Arc<Management>,
}

impl Office {
    /// Opens an empty store at [`BEGIN`].
    pub fn open() -> Self {
        Self::keeping(None)
    }

    /// Opens an empty store at [`BEGIN`] that keeps this many journal entries.
    pub fn keeping(journal_entries: Option<u64>) -> Self {
        let clock = Arc::new(Script::at(BEGIN));
        let records = Arc::new(Unreliable::default());
        let kept = StoreRetention { journal_entries, ..StoreRetention::all(SUITE_EVENTS) };
        let store = Arc::new(Store::new(records.clone(), clock.clone(), kept));
        let peppers = Peppers { current: Pepper::new([7; 32]), previous: None };
        let prefix = Prefix::parse("fg").unwrap();
        let credentials = Arc::new(Credentials::new(store.clone(), peppers, prefix));
        let management = Management::new(store.clone(), clock.clone(), credentials.clone());
        let management = Arc::new(management.with_catalog(catalog()));
        Self { clock, records, store, credentials, management }
    }

    /// Creates an account, and a management key whose plaintext is returned.
    pub async fn account(&self, name: &str) -> (AccountId, String) {
        let account =
            self.management.create_account(name, NanoUsd::from_usd(10), Actor::System).await.unwrap();
        let settings = ManagementKeySettings::full("test");
        let key = self.management.create_management_key(account, settings, Actor::System).await.unwrap();
        (account, key.expose_secret().to_owned())
    }
}

/// A clock that stands still until a test moves it. Random numbers count down, so that ids do not happen to sort by
/// creation.
pub struct Script {
    millis: AtomicI64,
    drawn: AtomicU64,
}

impl Script {
    fn at(time: &str) -> Self {
        Self { millis: AtomicI64::new(Timestamp::parse(time).unwrap().millis()), drawn: AtomicU64::new(0) }
    }

    pub fn set(&self, time: &str) {
        self.millis.store(Timestamp::parse(time).unwrap().millis(), Ordering::SeqCst);
    }
}

impl Clock for Script {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::SeqCst))
    }

    fn random(&self, bytes: &mut [u8]) {
        let count = (u64::MAX - self.drawn.fetch_add(1, Ordering::SeqCst)).to_be_bytes();
        bytes.fill(0);
        for (byte, counted) in bytes.iter_mut().rev().zip(count.into_iter().rev()) {
            *byte = counted;
        }
    }
}

/// Returns the refusal of a call that must have been refused.
pub fn refused<T: Debug, R: Debug>(outcome: Result<T, Error<R>>) -> R {
    match outcome {
        Err(Error::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

/// Returns the catalogue that ships with the project.
pub fn catalog() -> Arc<Current<Catalog>> {
    Arc::new(Current::new(
        Catalog::parse(include_str!("../../../config/models.toml"), "models.toml").unwrap(),
    ))
}
