//! Members and expiring records in memory.

use async_trait::async_trait;
use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use super::{Reference, book::AccountBook};
use crate::store::{Expiring, ExpiringRecord, MemberCreated, Members, RecordKind, StoreError};
use domain::{
    digest::Digest,
    event::{Act, EventKind},
    member::{Member, MemberChange},
    second_factor::SecondFactor,
};

#[async_trait]
impl Members for Reference {
    async fn create_member(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
        act: &Act,
    ) -> Result<MemberCreated, StoreError> {
        let mut books = self.books()?;
        let book = books.account(account)?;
        match book.members.values().find(|other| other.name == member.name) {
            Some(named) if named.id == member.id => return Ok(MemberCreated::Made),
            Some(_) => return Ok(MemberCreated::NameTaken),
            None if book.members.len() as u64 >= most => return Ok(MemberCreated::TooMany),
            None => {}
        }
        book.tell(act.event(0, None, None, member.invitation()));
        book.members.insert(member.id, member);
        Ok(MemberCreated::Made)
    }

    async fn members(&self, account: AccountId) -> Result<Vec<Member>, StoreError> {
        let books = self.books()?;
        let members = books.accounts.get(&account).map(|book| book.members.values().cloned().collect());
        Ok(members.unwrap_or_default())
    }

    async fn member_named(&self, account: AccountId, name: &str) -> Result<Option<Member>, StoreError> {
        let books = self.books()?;
        let named = |book: &AccountBook| book.members.values().find(|member| member.name == name).cloned();
        Ok(books.accounts.get(&account).and_then(named))
    }

    async fn update_member(
        &self,
        account: AccountId,
        id: MemberId,
        change: MemberChange,
    ) -> Result<bool, StoreError> {
        let mut books = self.books()?;
        let found = books.accounts.get_mut(&account).and_then(|book| book.members.get_mut(&id));
        Ok(found.map(|member| *member = member.clone().changed(change)).is_some())
    }

    async fn replace_second_factor(
        &self,
        account: AccountId,
        member: &Member,
        after: Option<SecondFactor>,
        act: &Act,
    ) -> Result<bool, StoreError> {
        let mut books = self.books()?;
        let Some(book) = books.accounts.get_mut(&account) else { return Ok(false) };
        let found = book.members.get_mut(&member.id);
        let Some(found) = found.filter(|found| found.second_factor == member.second_factor) else {
            return Ok(false);
        };
        let event = member.second_factor_event(after.as_ref());
        found.second_factor = after;
        if let Some(kind) = event {
            book.tell(act.event(0, None, None, kind));
        }
        Ok(true)
    }

    async fn remove_member(&self, account: AccountId, id: MemberId, act: &Act) -> Result<bool, StoreError> {
        let mut books = self.books()?;
        let Some(book) = books.accounts.get_mut(&account) else { return Ok(false) };
        book.expiring.retain(|_, record| record.member != id);
        let Some(Member { name, .. }) = book.members.remove(&id) else { return Ok(false) };
        book.tell(act.event(0, None, None, EventKind::MemberRemoved { member_id: id, name }));
        Ok(true)
    }
}

#[async_trait]
impl Expiring for Reference {
    async fn put_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        act: &Act,
    ) -> Result<(), StoreError> {
        let mut books = self.books()?;
        let book = books.account(account)?;
        let is_replaced = |other: &ExpiringRecord| {
            record.kind == RecordKind::Link && other.kind == record.kind && other.member == record.member
        };
        book.expiring.retain(|_, other| other.expires_at > act.at && !is_replaced(other));
        if record.kind == RecordKind::Session && !book.expiring.contains_key(&(record.kind, record.name)) {
            let signed_in = EventKind::MemberSignedIn { member_id: record.member };
            book.tell(act.event(0, None, None, signed_in));
        }
        book.expiring.insert((record.kind, record.name), record);
        Ok(())
    }

    async fn record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(None) };
        let record = book.expiring.get(&(kind, name)).filter(|record| record.expires_at > now);
        Ok(record.and_then(|record| Some((record.clone(), book.members.get(&record.member)?.clone()))))
    }

    async fn take_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        let mut books = self.books()?;
        let Some(book) = books.accounts.get_mut(&account) else { return Ok(None) };
        let record = book.expiring.remove(&(kind, name)).filter(|record| record.expires_at > now);
        Ok(record.and_then(|record| book.members.get(&record.member).cloned().map(|member| (record, member))))
    }

    async fn replace_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        _: Timestamp,
    ) -> Result<(), StoreError> {
        let mut books = self.books()?;
        let book = books.accounts.get_mut(&account);
        if let Some(found) = book.and_then(|book| book.expiring.get_mut(&(record.kind, record.name))) {
            *found = record;
        }
        Ok(())
    }

    async fn records(
        &self,
        account: AccountId,
        kind: RecordKind,
        member: MemberId,
        now: Timestamp,
    ) -> Result<Vec<ExpiringRecord>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(Vec::new()) };
        let is_wanted = |record: &&ExpiringRecord| {
            record.kind == kind && record.member == member && record.expires_at > now
        };
        Ok(book.expiring.values().filter(is_wanted).cloned().collect())
    }

    async fn remove_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
    ) -> Result<(), StoreError> {
        if let Some(book) = self.books()?.accounts.get_mut(&account) {
            book.expiring.remove(&(kind, name));
        }
        Ok(())
    }

    async fn count_attempt(&self, name: Digest, now: Timestamp, until: Timestamp) -> Result<u64, StoreError> {
        let mut books = self.books()?;
        books.attempts.retain(|_, (_, until)| *until > now);
        let (count, _) = books.attempts.entry(name).or_insert((0, until));
        *count += 1;
        Ok(*count)
    }

    async fn take_attempt_back(&self, name: Digest) -> Result<(), StoreError> {
        if let Some((count, _)) = self.books()?.attempts.get_mut(&name) {
            *count = count.saturating_sub(1);
        }
        Ok(())
    }

    async fn forget_attempts(&self, name: Digest) -> Result<(), StoreError> {
        self.books()?.attempts.remove(&name);
        Ok(())
    }
}

impl Reference {
    /// Rows of attempts, forgotten ones included.
    pub(crate) fn counted_attempts(&self) -> usize {
        self.books().map_or(0, |books| books.attempts.len())
    }
}
