//! The reference store: the simplest specification of a store, behind one lock.

mod book;
mod events;
mod groups;
mod members;
mod moving;
mod refused;
mod webhooks;

use std::{
    collections::BTreeMap,
    ops::{Bound, RangeInclusive},
};

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use shared::{
    ids::{AccountId, GenerationId, GroupId, KeyId, ManagementKeyId},
    money::NanoUsd,
    rpc::Principal,
    time::Timestamp,
};

use self::book::{AccountBook, Shelf};
use super::{Fault, Outage};
use crate::store::{
    AccountSummary, Accounts, Books, Capacity, Created, Credential, Credentials, Cursor, Deposit, DueHold,
    DueHolds, Funds, HoldIndex, Idempotency, JournalEntry, JournalPage, Keys, Ledger, ManagementKey,
    NewAccount, NewManagementKey, Order, Outcomes, Page, Rotated, Skew, SpendLine, StoreError, Updated,
    UsageLine,
};
use domain::{
    access::is_noted,
    audit::Audit,
    digest::Digest,
    event::{Act, EventKind},
    key::{ApiKey, KeyPatch, NewCredential, NewKey},
    ledger::{Command, Record, RecordId, Refused},
    usage::{Day, Margin},
};

/// Number of due holds on a page.
const DUE_AT_ONCE: usize = 512;

/// A store of maps.
#[derive(Debug, Default)]
pub(crate) struct Reference {
    books: Mutex<Shelf>,
    pub(crate) outage: Outage,
}

impl Reference {
    /// An empty store.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Locks the store. The ledger decides before anything is changed, so a panic leaves no half-written state.
    fn books(&self) -> Result<MutexGuard<'_, Shelf>, StoreError> {
        self.outage.pass()?;
        Ok(self.books.lock())
    }

    /// Writes directly, without the ledger.
    pub(crate) fn doctor(&self, account: AccountId, fault: Fault) {
        self.books().unwrap().accounts.get_mut(&account).unwrap().doctor(fault);
    }

    /// From now on the store says that it is nearly full, or that it is not.
    pub(crate) fn set_nearly_full(&self, is_nearly_full: bool) {
        self.books().unwrap().is_nearly_full = is_nearly_full;
    }
}

impl Reference {
    fn keys_that(
        &self,
        account: AccountId,
        page: Page,
        is_wanted: impl Fn(&ApiKey) -> bool,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(Vec::new()) };
        let behind = page.after.map_or(Bound::Unbounded, Bound::Excluded);
        let is_wanted = |key: &&ApiKey| {
            is_wanted(key) && page.status.is_none_or(|(status, now)| key.status(now) == status)
        };
        Ok(match page.order {
            Order::Ascending => {
                let keys = book.keys.range((behind, Bound::Unbounded)).map(|(_, key)| key);
                keys.filter(is_wanted).take(page.limit).cloned().collect()
            }
            Order::Descending => {
                let keys = book.keys.range((Bound::Unbounded, behind)).rev().map(|(_, key)| key);
                keys.filter(is_wanted).take(page.limit).cloned().collect()
            }
        })
    }
}

#[async_trait]
impl Ledger for Reference {
    fn system(&self) -> &'static str {
        "reference"
    }

    async fn execute(
        &self,
        account: AccountId,
        commands: Vec<Command>,
        now: Timestamp,
    ) -> Result<Outcomes, StoreError> {
        Ok(match self.books()?.accounts.get_mut(&account) {
            Some(book) => book.execute(account, &commands, now),
            None => commands.iter().map(|_| Err(Refused::UnknownKey)).collect(),
        })
    }

    async fn accounts_with_holds(&self) -> HoldIndex {
        match self.books() {
            Ok(books) => {
                let holding = books.accounts.iter().filter(|(_, book)| book.has_holds());
                HoldIndex { accounts: holding.map(|(id, _)| *id).collect(), missing: None }
            }
            Err(unavailable) => HoldIndex { accounts: Vec::new(), missing: Some(unavailable) },
        }
    }

    async fn due_holds(&self, account: AccountId, after: Option<Cursor>) -> Result<DueHolds, StoreError> {
        let behind: Option<GenerationId> = after.and_then(|Cursor(last)| last.parse().ok());
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(DueHolds::default()) };
        let due = |(id, record): (&RecordId, &Record)| match (id, record) {
            (RecordId::Generation(generation), Record::Open(hold)) if hold.lease_until <= book.money.tick => {
                Some(DueHold { key: hold.payer.key, generation: *generation })
            }
            _ => None,
        };
        let mut holds: Vec<_> = book.records.iter().filter_map(due).collect();
        holds.retain(|hold| behind.is_none_or(|behind| hold.generation > behind));
        holds.sort_by_key(|hold| hold.generation);
        let more = holds.len() > DUE_AT_ONCE;
        holds.truncate(DUE_AT_ONCE);
        let next = holds.last().filter(|_| more).map(|hold| Cursor(hold.generation.to_string()));
        Ok(DueHolds { holds, next })
    }

    async fn clock_skew(&self) -> Result<Option<Skew>, StoreError> {
        Ok(None)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.books().map(drop)
    }
}

#[async_trait]
impl Credentials for Reference {
    async fn find_credential(&self, digest: Digest) -> Result<Option<Credential>, StoreError> {
        Ok(self.books()?.credentials.get(&digest).copied())
    }

    async fn pepper_record(&self) -> Result<Option<String>, StoreError> {
        Ok(self.books()?.pepper_record.clone())
    }

    async fn replace_pepper_record(&self, seen: Option<String>, record: String) -> Result<bool, StoreError> {
        let mut books = self.books()?;
        let unchanged = books.pepper_record == seen;
        if unchanged {
            books.pepper_record = Some(record);
        }
        Ok(unchanged)
    }
}

#[async_trait]
impl Keys for Reference {
    async fn create_key(
        &self,
        new: NewKey,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Created, StoreError> {
        let mut books = self.books()?;
        let book = books.account(new.account)?;
        if let Some(attempt) = idempotency {
            if let Some(created) = book.repeated(&new.key, &attempt) {
                return Ok(created);
            }
            if let Some(refused) = book.refused(&new) {
                return Ok(refused);
            }
            book.keep_idempotency_record(&attempt, new.key.id.as_bytes());
        }
        if let Some(refused) = book.refused(&new) {
            return Ok(refused);
        }
        let id = new.key.id;
        if !book.keys.contains_key(&id) {
            let created = new.key.creation(act.at);
            book.tell(act.event(0, Some(id), new.key.spend.group, created));
        }
        let key = book.keys.entry(id).or_insert(new.key).clone();
        let owner = Principal::ApiKey(new.account, id);
        books.credentials.insert(new.digest, Credential::first(owner));
        Ok(Created::New(key))
    }

    async fn key(&self, account: AccountId, id: KeyId) -> Result<Option<ApiKey>, StoreError> {
        Ok(self.books()?.accounts.get(&account).and_then(|book| book.keys.get(&id)).cloned())
    }

    async fn keys(&self, account: AccountId, page: Page) -> Result<Vec<ApiKey>, StoreError> {
        self.keys_that(account, page, |_| true)
    }

    async fn top_spending(
        &self,
        account: AccountId,
        after: Option<KeyId>,
        limit: usize,
    ) -> Result<Vec<ApiKey>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(Vec::new()) };
        let place = |key: &ApiKey| std::cmp::Reverse((key.spend.budget.used, key.id));
        let after = after.and_then(|id| book.keys.get(&id)).map(place);
        let mut keys: Vec<ApiKey> =
            book.keys.values().filter(|key| key.spend.budget.used > NanoUsd::ZERO).cloned().collect();
        keys.retain(|key| after.is_none_or(|after| place(key) > after));
        keys.sort_by_key(place);
        keys.truncate(limit);
        Ok(keys)
    }

    async fn holds_of(&self, account: AccountId, key: KeyId) -> Result<u64, StoreError> {
        let books = self.books()?;
        let is_of = |record: &&Record| matches!(record, Record::Open(hold) if hold.payer.key == key);
        let holds = books.accounts.get(&account).map(|book| book.records.values().filter(is_of).count());
        Ok(holds.unwrap_or_default() as u64)
    }

    async fn update_key(
        &self,
        account: AccountId,
        id: KeyId,
        patch: KeyPatch,
        act: &Act,
    ) -> Result<Updated, StoreError> {
        let mut books = self.books()?;
        let Some(book) = books.accounts.get_mut(&account) else { return Ok(Updated::NotFound) };
        let Some(before) = book.keys.get(&id).cloned() else { return Ok(Updated::NotFound) };
        Ok(match (before.clone().updated(&patch, act.at), book.takes_key(patch.group.flatten())) {
            (Ok(updated), Ok(())) => {
                book.keys.insert(id, updated.clone());
                if let Some(kind) = updated.change(&before, act.at) {
                    book.tell(act.event(0, Some(id), updated.spend.group, kind));
                }
                Updated::Key(updated)
            }
            (Err(reason), _) => Updated::NotChanged(reason),
            (Ok(_), Err(bad)) => Updated::BadGroup(bad),
        })
    }

    async fn rotate_key(
        &self,
        new: NewCredential,
        idempotency: Option<Idempotency>,
        act: &Act,
    ) -> Result<Rotated, StoreError> {
        let (mut books, owner) = (self.books()?, Principal::ApiKey(new.account, new.key));
        let is_repeated = books.credentials.contains_key(&new.digest);
        let Some(book) = books.accounts.get_mut(&new.account) else { return Ok(Rotated::NotFound) };
        let Some(key) = book.keys.get(&new.key).cloned() else { return Ok(Rotated::NotFound) };
        if is_repeated {
            return Ok(Rotated::New(key));
        }
        match idempotency.as_ref().and_then(|attempt| book.idempotent(attempt)) {
            Some(Err(())) => return Ok(Rotated::Reused),
            Some(Ok(_)) => return Ok(Rotated::Replayed(key)),
            None => {}
        }
        let rotated = match key.rotated(&new, act.at) {
            Ok(rotated) => rotated,
            Err(reason) => return Ok(Rotated::Refused(reason)),
        };
        if let Some(attempt) = &idempotency {
            book.keep_idempotency_record(attempt, new.key.as_bytes());
        }
        book.tell(act.event(0, Some(new.key), rotated.spend.group, rotated.rotation_event(act.at)));
        book.keys.insert(new.key, rotated.clone());
        let number = rotated.spend.rotation.current;
        let is_kept =
            |other: &Credential| other.owner != owner || other.number == 0 || other.number + 1 >= number;
        books.credentials.retain(|_, other| is_kept(other));
        books.credentials.insert(new.digest, Credential { owner, number });
        Ok(Rotated::New(rotated))
    }

    async fn revoke_key(
        &self,
        account: AccountId,
        id: KeyId,
        act: &Act,
    ) -> Result<Option<ApiKey>, StoreError> {
        let mut books = self.books()?;
        let Some(book) = books.accounts.get_mut(&account) else { return Ok(None) };
        let Some(key) = book.keys.get(&id).cloned() else { return Ok(None) };
        if key.spend.revoked_at.is_none() {
            book.tell(act.event(0, Some(id), key.spend.group, EventKind::KeyRevoked {}));
        }
        let revoked = key.revoked(act.at);
        book.keys.insert(id, revoked.clone());
        Ok(Some(revoked))
    }
}

#[async_trait]
impl Accounts for Reference {
    async fn create_account(&self, account: NewAccount) -> Result<bool, StoreError> {
        let mut books = self.books()?;
        if let Some((id, _)) = books.accounts.iter().find(|(_, book)| book.name == account.name) {
            return Ok(*id == account.id);
        }
        books.accounts.insert(account.id, AccountBook::new(account));
        Ok(true)
    }

    async fn accounts(&self) -> Result<Vec<AccountSummary>, StoreError> {
        let summary = |(id, book): (&AccountId, &AccountBook)| AccountSummary {
            id: *id,
            name: book.name.clone(),
            credit: book.money.credit,
            held: book.money.held,
            keys: book.keys.len() as u64,
            created_at: book.created_at,
        };
        Ok(self.books()?.accounts.iter().map(summary).collect())
    }

    async fn account_named(&self, name: &str) -> Result<Option<AccountId>, StoreError> {
        Ok(self.books()?.accounts.iter().find(|(_, book)| book.name == name).map(|(id, _)| *id))
    }

    async fn funds(&self, account: AccountId) -> Result<Option<Funds>, StoreError> {
        let funds = |book: &AccountBook| Funds {
            name: book.name.clone(),
            credit: book.money.credit,
            held: book.money.held,
            keys: book.keys.len() as u64,
            groups: book.groups.len() as u64,
        };
        Ok(self.books()?.accounts.get(&account).map(funds))
    }

    async fn create_management_key(&self, new: NewManagementKey, act: &Act) -> Result<bool, StoreError> {
        let mut books = self.books()?;
        let (id, book) = (new.key.id, books.account(new.account)?);
        if !book.management_keys.contains_key(&id) {
            if book.management_keys.len() as u64 >= new.most {
                return Ok(false);
            }
            book.tell(act.event(0, None, None, new.key.creation()));
            book.management_keys.insert(id, new.key);
        }
        let owner = Principal::ManagementKey(new.account, id);
        books.credentials.insert(new.digest, Credential::first(owner));
        Ok(true)
    }

    async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError> {
        let books = self.books()?;
        let keys = books.accounts.get(&account).map(|book| book.management_keys.values().cloned().collect());
        Ok(keys.unwrap_or_default())
    }

    async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<Option<ManagementKey>, StoreError> {
        Ok(self.books()?.accounts.get(&account).and_then(|book| book.management_keys.get(&id)).cloned())
    }

    async fn use_management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut books = self.books()?;
        let book = books.accounts.get_mut(&account);
        let found = book.and_then(|book| book.management_keys.get_mut(&id));
        let Some(key) = found.filter(|key| is_noted(key.last_used_at, now)) else { return Ok(false) };
        key.last_used_at = Some(now);
        Ok(true)
    }

    async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        act: &Act,
    ) -> Result<Option<ManagementKey>, StoreError> {
        let mut books = self.books()?;
        let owner = books.accounts.values_mut().find(|book| book.management_keys.contains_key(&id));
        let Some(book) = owner else { return Ok(None) };
        let Some(key) = book.management_keys.get_mut(&id) else { return Ok(None) };
        let was_live = key.revoked_at.is_none();
        key.revoked_at.get_or_insert(act.at.to_whole_seconds());
        let key = key.clone();
        if was_live {
            let revoked = EventKind::ManagementKeyRevoked { management_key_id: id, name: key.name.clone() };
            book.tell(act.event(0, None, None, revoked));
        }
        Ok(Some(key))
    }
}

#[async_trait]
impl Capacity for Reference {
    async fn is_nearly_full(&self) -> Result<bool, StoreError> {
        Ok(self.books()?.is_nearly_full)
    }

    async fn used_ratio(&self) -> Result<Option<f64>, StoreError> {
        Ok(None)
    }

    async fn persistence_warning(&self) -> Option<&'static str> {
        None
    }

    async fn try_write(&self) -> Result<(), StoreError> {
        self.books().map(drop)
    }
}

#[async_trait]
impl Books for Reference {
    async fn journal(&self, account: AccountId, after: u64, limit: usize) -> Result<JournalPage, StoreError> {
        let books = self.books()?;
        let entries = books.accounts.get(&account).map(|book| book.entries_behind(after, limit));
        Ok(JournalPage { entries: entries.unwrap_or_default(), gone_until: 0 })
    }

    async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        let books = self.books()?;
        let entries = books.accounts.get(&account).map(|book| book.latest_entries(before, limit));
        Ok(entries.unwrap_or_default())
    }

    async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError> {
        let books = self.books()?;
        Ok(books.accounts.get(&account).map(|book| book.latest_deposits(limit)).unwrap_or_default())
    }

    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        keys: Option<&[KeyId]>,
    ) -> Result<Vec<UsageLine>, StoreError> {
        Ok(self.books()?.accounts.get(&account).map(|book| book.usage_of(&days, keys)).unwrap_or_default())
    }

    async fn margins_by_model(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<String, Margin>, StoreError> {
        let margins = |book: &AccountBook| book.margins_by(&days, |payer| payer.model.clone());
        Ok(self.books()?.accounts.get(&account).map(margins).unwrap_or_default())
    }

    async fn margins_by_group(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<Option<GroupId>, Margin>, StoreError> {
        let margins = |book: &AccountBook| book.margins_by(&days, |payer| payer.groups[0]);
        Ok(self.books()?.accounts.get(&account).map(margins).unwrap_or_default())
    }

    async fn spend(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<SpendLine>, StoreError> {
        Ok(self.books()?.accounts.get(&account).map(|book| book.spend_of(&days)).unwrap_or_default())
    }

    fn counters_kept(&self) -> Option<u32> {
        None
    }

    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        Ok(self.books()?.accounts.get(&account).map(AccountBook::audit))
    }
}
