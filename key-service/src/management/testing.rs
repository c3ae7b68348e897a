//! What the tests of management, of its HTTP and of its commands share: a clock that is moved by hand, and a store that
//! fails on demand.

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use shared::{
    clock::Clock,
    digest::{Digest, Pepper, Peppers},
    ids::{AccountId, KeyId, ManagementKeyId},
    key::Prefix,
    money::NanoUsd,
    secret::ExposeSecret,
    time::Timestamp,
};

use super::Management;
use crate::{
    credentials::Credentials,
    domain::{
        audit::Audit,
        key::{AlreadyRevoked, ApiKey, KeyPatch, NewKey},
        ledger::Command,
        usage::Day,
    },
    store::{
        AccountSummary, Created, DueHold, Idempotency, JournalPage, ManagementKey, NewAccount,
        NewManagementKey, Outcomes, Owner, Page, Store, Unavailable, UsageLine, memory::Memory,
    },
};

/// When every test begins; not on a whole second.
pub(crate) const BEGIN: &str = "2026-11-20T02:11:05.678Z";

/// Management of a store in memory, at a time of the test's choosing.
pub(crate) struct Office {
    pub(crate) clock: Arc<Script>,
    pub(crate) store: Arc<Fallible>,
    pub(crate) management: Arc<Management>,
}

impl Office {
    pub(crate) fn open() -> Self {
        let clock = Arc::new(Script::at(BEGIN));
        let store = Arc::new(Fallible { memory: Memory::new(), calls_left: AtomicU64::new(u64::MAX) });
        let peppers = Peppers { current: Pepper::new([7; 32]), previous: None };
        let credentials = Credentials::new(store.clone(), peppers, Prefix::parse("fg").unwrap());
        let management = Arc::new(Management::new(store.clone(), clock.clone(), Arc::new(credentials)));
        Self { clock, store, management }
    }

    /// A new account, and the plaintext of a management key of it.
    pub(crate) async fn account(&self, name: &str) -> (AccountId, String) {
        let account = self.management.create_account(name, NanoUsd::from_usd(10)).await.unwrap();
        let key = self.management.create_management_key(account, "test").await.unwrap();
        (account, key.expose_secret().to_owned())
    }
}

/// A clock that stands still until it is moved. Its chance counts down: where later ids sort behind earlier ones, it is
/// not by chance.
pub(crate) struct Script {
    millis: AtomicI64,
    drawn: AtomicU64,
}

impl Script {
    fn at(time: &str) -> Self {
        Self { millis: AtomicI64::new(Timestamp::parse(time).unwrap().millis()), drawn: AtomicU64::new(0) }
    }

    pub(crate) fn set(&self, time: &str) {
        self.millis.store(Timestamp::parse(time).unwrap().millis(), Ordering::SeqCst);
    }
}

impl Clock for Script {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::SeqCst))
    }

    fn random(&self, bytes: &mut [u8]) {
        let count = (u64::MAX - self.drawn.fetch_add(1, Ordering::SeqCst)).to_be_bytes();
        let at = bytes.len() - count.len();
        bytes.fill(0);
        bytes[at..].copy_from_slice(&count);
    }
}

/// The store in memory, which answers so many more calls and then none.
pub(crate) struct Fallible {
    memory: Memory,
    calls_left: AtomicU64,
}

impl Fallible {
    pub(crate) fn fail_after(&self, calls: u64) {
        self.calls_left.store(calls, Ordering::SeqCst);
    }

    pub(crate) fn recover(&self) {
        self.fail_after(u64::MAX);
    }

    /// Writes past the ledger.
    pub(crate) fn doctor(&self, account: AccountId, fault: crate::store::suite::Fault) {
        self.memory.doctor(account, fault);
    }

    fn answering(&self) -> Result<&Memory, Unavailable> {
        let took =
            self.calls_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        took.map(|_| &self.memory).map_err(|_| Unavailable("the disk at 10.0.0.7 is on fire".into()))
    }
}

#[async_trait]
impl Store for Fallible {
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, Unavailable> {
        self.answering()?.execute(account, commands, now).await
    }

    async fn due_holds(&self, now: Timestamp, limit: usize) -> Result<Vec<DueHold>, Unavailable> {
        self.answering()?.due_holds(now, limit).await
    }

    async fn find_credential(&self, digest: Digest) -> Result<Option<Owner>, Unavailable> {
        self.answering()?.find_credential(digest).await
    }

    async fn create_account(&self, account: NewAccount) -> Result<bool, Unavailable> {
        self.answering()?.create_account(account).await
    }

    async fn accounts(&self) -> Result<Vec<AccountSummary>, Unavailable> {
        self.answering()?.accounts().await
    }

    async fn create_management_key(&self, key: NewManagementKey) -> Result<(), Unavailable> {
        self.answering()?.create_management_key(key).await
    }

    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, Unavailable> {
        self.answering()?.management_keys(account).await
    }

    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, Unavailable> {
        self.answering()?.management_key(account, id).await
    }

    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<Option<ManagementKey>, Unavailable> {
        self.answering()?.revoke_management_key(id, now).await
    }

    async fn create_key(
        &self,
        key: NewKey,
        idempotency: Option<Idempotency>,
    ) -> Result<Created, Unavailable> {
        self.answering()?.create_key(key, idempotency).await
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, Unavailable> {
        self.answering()?.key(account, id).await
    }

    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, Unavailable> {
        self.answering()?.keys(account, page).await
    }

    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
    ) -> Result<Option<Result<ApiKey, AlreadyRevoked>>, Unavailable> {
        self.answering()?.update_key(account, id, patch).await
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, Unavailable> {
        self.answering()?.revoke_key(account, id, now).await
    }

    async fn journal(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<JournalPage, Unavailable> {
        self.answering()?.journal(account, after, limit).await
    }

    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, Unavailable> {
        self.answering()?.usage(account, days, key).await
    }

    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, Unavailable> {
        self.answering()?.audit(account).await
    }

    async fn ping(&self) -> Result<(), Unavailable> {
        self.answering()?.ping().await
    }
}
