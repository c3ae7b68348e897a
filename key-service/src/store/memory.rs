//! The reference store: everything behind one lock, nothing survives the process.

mod book;

use std::{
    ops::{Bound, RangeInclusive},
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use shared::{
    digest::Digest,
    ids::{AccountId, KeyId, ManagementKeyId},
    time::Timestamp,
};

use self::book::{AccountBook, Books, Promise};
use super::{
    AccountSummary, Created, DueHold, Idempotency, JournalPage, ManagementKey, NewAccount, NewManagementKey,
    Order, Outcomes, Owner, Page, Store, Unavailable, UsageLine,
};
use crate::domain::{
    audit::Audit,
    key::{AlreadyRevoked, ApiKey, KeyPatch, NewKey},
    ledger::{Command, Record, RecordId, Refused},
    usage::Day,
};

/// A store in memory: for tests, and as the plainest reading of what a store is.
#[derive(Debug, Default)]
pub struct Memory {
    books: Mutex<Books>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A panic elsewhere cannot have left the books half written: the ledger decides before anything is changed.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Memory {
    /// Writes past the ledger.
    pub(crate) fn doctor(&self, account: AccountId, fault: super::suite::Fault) {
        self.books().accounts.get_mut(&account).unwrap().doctor(fault);
    }
}

#[async_trait]
impl Store for Memory {
    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, Unavailable> {
        Ok(match self.books().accounts.get_mut(&account) {
            Some(book) => commands.iter().map(|command| book.apply(command, now)).collect(),
            None => commands.iter().map(|_| Err(Refused::UnknownKey)).collect(),
        })
    }

    async fn due_holds(&self, now: Timestamp, limit: usize) -> Result<Vec<DueHold>, Unavailable> {
        let mut due = Vec::new();
        for (account, book) in &self.books().accounts {
            for (id, record) in &book.records {
                if let (RecordId::Generation(generation), Record::Open(hold)) = (id, record)
                    && hold.lease_until <= now
                {
                    let hold_due = DueHold { account: *account, key: hold.key, generation: *generation };
                    due.push((hold.lease_until, hold_due));
                }
            }
        }
        due.sort_by_key(|(lease_until, hold)| (*lease_until, hold.account, hold.generation));
        Ok(due.into_iter().take(limit).map(|(_, hold)| hold).collect())
    }

    async fn find_credential(&self, digest: Digest) -> Result<Option<Owner>, Unavailable> {
        Ok(self.books().credentials.get(&digest).copied())
    }

    async fn create_account(&self, account: NewAccount) -> Result<bool, Unavailable> {
        let mut books = self.books();
        if let Some((id, _)) = books.accounts.iter().find(|(_, book)| book.name == account.name) {
            return Ok(*id == account.id);
        }
        books.accounts.insert(account.id, AccountBook::new(account));
        Ok(true)
    }

    async fn accounts(&self) -> Result<Vec<AccountSummary>, Unavailable> {
        let summary = |(id, book): (&AccountId, &AccountBook)| AccountSummary {
            id: *id,
            name: book.name.clone(),
            credit: book.money.credit,
            held: book.money.held,
            keys: book.keys.len() as u64,
            created_at: book.created_at,
        };
        Ok(self.books().accounts.iter().map(summary).collect())
    }

    async fn create_management_key(&self, new: NewManagementKey) -> Result<(), Unavailable> {
        let mut books = self.books();
        let id = new.key.id;
        books.account(new.account)?.management_keys.entry(id).or_insert(new.key);
        books.credentials.insert(new.digest, Owner::ManagementKey(new.account, id));
        Ok(())
    }

    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, Unavailable> {
        let books = self.books();
        let keys = books.accounts.get(&account).map(|book| book.management_keys.values().cloned().collect());
        Ok(keys.unwrap_or_default())
    }

    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, Unavailable> {
        Ok(self.books().accounts.get(&account).and_then(|book| book.management_keys.get(&id)).cloned())
    }

    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<Option<ManagementKey>, Unavailable> {
        let mut books = self.books();
        let found = books.accounts.values_mut().find_map(|book| book.management_keys.get_mut(&id));
        Ok(found.map(|key| {
            key.revoked_at.get_or_insert(now);
            key.clone()
        }))
    }

    async fn create_key(
        &self,
        new: NewKey,
        idempotency: Option<Idempotency>,
    ) -> Result<Created, Unavailable> {
        let mut books = self.books();
        let book = books.account(new.account)?;
        if let Some(attempt) = idempotency {
            if let Some(created) = book.promised(&new.key, &attempt) {
                return Ok(created);
            }
            book.idempotency.retain(|_, promise| promise.expires_at > attempt.now);
            let Idempotency { key, request, expires_at, .. } = attempt;
            book.idempotency.insert(key, Promise { request, key: new.key.id, expires_at });
        }
        let id = new.key.id;
        let key = book.keys.entry(id).or_insert(new.key).clone();
        books.credentials.insert(new.digest, Owner::ApiKey(new.account, id));
        Ok(Created::New(key))
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, Unavailable> {
        Ok(self.books().accounts.get(&account).and_then(|book| book.keys.get(&id)).cloned())
    }

    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, Unavailable> {
        let books = self.books();
        let Some(book) = books.accounts.get(&account) else { return Ok(Vec::new()) };
        let behind = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(match page.order {
            Order::Ascending => {
                let keys = book.keys.range((behind, Bound::Unbounded));
                keys.take(page.limit).map(|(_, key)| key.clone()).collect()
            }
            Order::Descending => {
                let keys = book.keys.range((Bound::Unbounded, behind)).rev();
                keys.take(page.limit).map(|(_, key)| key.clone()).collect()
            }
        })
    }

    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
    ) -> Result<Option<Result<ApiKey, AlreadyRevoked>>, Unavailable> {
        let mut books = self.books();
        let found = books.accounts.get_mut(&account).and_then(|book| book.keys.get_mut(&id));
        Ok(found.map(|key| {
            *key = key.clone().updated(&patch)?;
            Ok(key.clone())
        }))
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, Unavailable> {
        let mut books = self.books();
        let found = books.accounts.get_mut(&account).and_then(|book| book.keys.get_mut(&id));
        Ok(found.map(|key| {
            *key = key.clone().revoked(now);
            key.clone()
        }))
    }

    async fn journal(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<JournalPage, Unavailable> {
        let books = self.books();
        let entries = books.accounts.get(&account).map(|book| book.entries_behind(after, limit));
        Ok(JournalPage { entries: entries.unwrap_or_default(), gone_until: 0 })
    }

    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        key: Option<KeyId>,
    ) -> Result<Vec<UsageLine>, Unavailable> {
        Ok(self.books().accounts.get(&account).map(|book| book.usage_of(&days, key)).unwrap_or_default())
    }

    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, Unavailable> {
        Ok(self.books().accounts.get(&account).map(AccountBook::audit))
    }

    async fn ping(&self) -> Result<(), Unavailable> {
        Ok(())
    }
}
