//! Members in memory.

use async_trait::async_trait;
use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use super::{Memory, book::AccountBook};
use crate::store::{MemberCreated, Members, StoreError};
use domain::{
    digest::Digest,
    member::{Link, Member, MemberChange, Session},
};

#[async_trait]
impl Members for Memory {
    async fn create_member(
        &self,
        account: AccountId,
        member: Member,
        most: u64,
    ) -> Result<MemberCreated, StoreError> {
        let mut books = self.books()?;
        let book = books.account(account)?;
        match book.members.values().find(|other| other.name == member.name) {
            Some(named) if named.id == member.id => return Ok(MemberCreated::Made),
            Some(_) => return Ok(MemberCreated::NameTaken),
            None if book.members.len() as u64 >= most => return Ok(MemberCreated::TooMany),
            None => {}
        }
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

    async fn remove_member(&self, account: AccountId, id: MemberId) -> Result<bool, StoreError> {
        let mut books = self.books()?;
        let Some(book) = books.accounts.get_mut(&account) else { return Ok(false) };
        book.links.retain(|_, link| link.member != id);
        book.sessions.retain(|_, session| session.member != id);
        Ok(book.members.remove(&id).is_some())
    }

    async fn create_link(&self, account: AccountId, link: Link, now: Timestamp) -> Result<(), StoreError> {
        let mut books = self.books()?;
        let book = books.account(account)?;
        book.links.retain(|_, other| other.expires_at > now && other.member != link.member);
        book.links.insert(link.digest, link);
        Ok(())
    }

    async fn link(
        &self,
        account: AccountId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(Link, Member)>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(None) };
        let link = book.links.get(&digest).filter(|link| link.expires_at > now);
        Ok(link.and_then(|link| Some((link.clone(), book.members.get(&link.member)?.clone()))))
    }

    async fn take_link(
        &self,
        account: AccountId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(Link, Member)>, StoreError> {
        let mut books = self.books()?;
        let Some(book) = books.accounts.get_mut(&account) else { return Ok(None) };
        let link = book.links.remove(&digest).filter(|link| link.expires_at > now);
        Ok(link.and_then(|link| book.members.get(&link.member).cloned().map(|member| (link, member))))
    }

    async fn create_session(&self, account: AccountId, session: Session) -> Result<(), StoreError> {
        let mut books = self.books()?;
        let book = books.account(account)?;
        book.sessions.retain(|_, other| other.expires_at > session.created_at);
        book.sessions.insert(session.digest, session);
        Ok(())
    }

    async fn session(
        &self,
        account: AccountId,
        digest: Digest,
        now: Timestamp,
    ) -> Result<Option<(Session, Member)>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(None) };
        let session = book.sessions.get(&digest).filter(|session| session.expires_at > now);
        Ok(session.and_then(|session| Some((session.clone(), book.members.get(&session.member)?.clone()))))
    }

    async fn touch_session(
        &self,
        account: AccountId,
        digest: Digest,
        seen_at: Timestamp,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut books = self.books()?;
        let session = books.accounts.get_mut(&account).and_then(|book| book.sessions.get_mut(&digest));
        if let Some(session) = session {
            (session.seen_at, session.expires_at) = (seen_at, expires_at);
        }
        Ok(())
    }

    async fn sessions(
        &self,
        account: AccountId,
        member: MemberId,
        now: Timestamp,
    ) -> Result<Vec<Session>, StoreError> {
        let books = self.books()?;
        let Some(book) = books.accounts.get(&account) else { return Ok(Vec::new()) };
        let is_live = |session: &&Session| session.member == member && session.expires_at > now;
        let mut sessions: Vec<Session> = book.sessions.values().filter(is_live).cloned().collect();
        sessions.sort_by_key(|session| session.id);
        Ok(sessions)
    }

    async fn end_session(&self, account: AccountId, digest: Digest) -> Result<(), StoreError> {
        if let Some(book) = self.books()?.accounts.get_mut(&account) {
            book.sessions.remove(&digest);
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

#[cfg(test)]
impl Memory {
    /// Rows of attempts, forgotten ones included.
    pub(crate) fn counted_attempts(&self) -> usize {
        self.books().map_or(0, |books| books.attempts.len())
    }
}
