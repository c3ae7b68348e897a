//! Changes of money by other than commands: an account is made, a key's bounds change.

use domain::ledger::{Account, Group, Key};
use shared::ids::{GroupId, KeyId};

use super::{
    codec::{AccountRecord, Balance},
    copies::{Copies, Slot, TheAccount, TheTurn},
};

/// A record cannot be read, so nothing can be decided by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record of the account cannot be read")]
pub struct Unreadable;

/// Money of an account, its keys and its groups, while a change is decided. What is read is guarded by the commit.
pub struct Change<'a> {
    copies: &'a mut Copies,
    missing: Vec<Slot>,
}

impl<'a> Change<'a> {
    pub(super) fn new(copies: &'a mut Copies) -> Self {
        let missing = [Slot::Turn].into_iter().filter(|slot| !copies.has(slot)).collect();
        copies.turn(&TheTurn);
        Self { copies, missing }
    }

    /// Records that have to be read before the change can be decided.
    pub(super) fn missing(self) -> Vec<Slot> {
        self.missing
    }

    /// Returns whether there is a copy; one that there is not is read, and the change decided again.
    fn has(&mut self, slot: Slot) -> bool {
        let is_there = self.copies.has(&slot);
        if !is_there && !self.missing.contains(&slot) {
            self.missing.push(slot);
        }
        is_there
    }

    /// The account's money; `None` where there is no account.
    pub fn account(&mut self) -> Result<Option<Account>, Unreadable> {
        if !self.has(Slot::Account) {
            return Ok(None);
        }
        let account = self.copies.account(&TheAccount).ok_or(Unreadable)?;
        Ok(account.map(|account| account.money))
    }

    /// Changes the account's money.
    pub fn set_account(&mut self, money: Account) {
        let before = self.copies.account.get(&TheAccount).copied().flatten().unwrap_or_default();
        self.copies.set_account(&TheAccount, Some(AccountRecord { money, ..before }));
    }

    /// Money and bounds of a key; `None` where there is no key.
    pub fn key(&mut self, id: KeyId) -> Result<Option<Key>, Unreadable> {
        if !self.has(Slot::Key(id)) {
            return Ok(None);
        }
        Ok(self.copies.key(&id).ok_or(Unreadable)?.map(|balance| balance.of))
    }

    /// Changes a key that was looked at.
    pub fn set_key(&mut self, id: KeyId, of: Key) {
        let before = self.copies.keys.get(&id).and_then(Option::as_ref);
        let last_entry = before.map_or(0, |balance| balance.last_entry);
        self.copies.set_key(&id, Some(Balance { of, last_entry }));
    }

    /// Money and bounds of a group; `None` where there is no group.
    pub fn group(&mut self, id: GroupId) -> Result<Option<Group>, Unreadable> {
        if !self.has(Slot::Group(id)) {
            return Ok(None);
        }
        Ok(self.copies.group(&id).ok_or(Unreadable)?.map(|balance| balance.of))
    }

    /// Changes a group that was looked at.
    pub fn set_group(&mut self, id: GroupId, of: Group) {
        let before = self.copies.groups.get(&id).and_then(Option::as_ref);
        let last_entry = before.map_or(0, |balance| balance.last_entry);
        self.copies.set_group(&id, Some(Balance { of, last_entry }));
    }
}
