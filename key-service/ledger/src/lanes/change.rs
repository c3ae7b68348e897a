//! Changes of an account other than commands: a key is created, a bound is lowered, a member is invited.

use domain::{
    event::Event,
    ledger::{Account, Group, Key, Told},
};
use minicbor::{Decode, Encode};
use records::{Index, Name, Write};
use shared::{
    ids::{GroupId, KeyId},
    time::Timestamp,
};

use crate::{
    batch::Effects,
    copies::{Copies, Slot, TheAccount, TheTurn},
    stored::{AccountRecord, Balance},
    view::{Unreadable, View},
};

/// An account while a change is decided: its money, its keys and groups, and all other records of its space. The commit
/// guards everything that the decision reads.
pub struct Change<'a> {
    copies: &'a mut Copies,
    view: &'a mut View,
    missing: Vec<Slot>,
    effects: Effects,
}

impl<'a> Change<'a> {
    pub(crate) fn new(copies: &'a mut Copies, view: &'a mut View) -> Self {
        view.begin();
        let missing = [Slot::Turn].into_iter().filter(|slot| !copies.has(slot)).collect();
        copies.turn(&TheTurn);
        Self { copies, view, missing, effects: Effects::default() }
    }

    /// Returns what to commit, or the records to read before the change can be decided.
    pub(crate) fn finish(mut self) -> Result<Effects, Vec<Slot>> {
        let mut effects = std::mem::take(&mut self.effects);
        if effects.events_len() > 0 {
            self.has(Slot::Account);
            self.has(Slot::Events);
            if let Some(Some(account)) = self.copies.account(&TheAccount) {
                effects = effects.numbered(&account);
                let events = account.events + effects.events_len();
                self.copies.set_account(&TheAccount, Some(AccountRecord { events, ..account }));
                effects.weigh_events(self.copies);
            }
        }
        let is_missing = !self.missing.is_empty() || !self.view.missing().is_empty();
        if is_missing { Err(self.missing) } else { Ok(effects) }
    }

    /// Returns whether there is a copy. If not, the record is read and the change decided again.
    fn has(&mut self, slot: Slot) -> bool {
        let is_there = self.copies.has(&slot);
        if !is_there && !self.missing.contains(&slot) {
            self.missing.push(slot);
        }
        is_there
    }

    /// The account's money; `None` if there is no account.
    pub fn account(&mut self) -> Result<Option<Account>, Unreadable> {
        if !self.has(Slot::Account) {
            return Ok(None);
        }
        let account = self.copies.account(&TheAccount).ok_or_else(|| unreadable("the account"))?;
        Ok(account.map(|account| account.money))
    }

    /// Time from which windows set now begin to count.
    pub fn windows_begin(&mut self, now: Timestamp) -> Result<Timestamp, Unreadable> {
        Ok(self.account()?.map_or(now, |account| account.windows_begin(now)))
    }

    /// Changes the account's money, or creates the account.
    pub fn set_account(&mut self, money: Account) {
        let before = self.copies.account.get(&TheAccount).copied().flatten().unwrap_or_default();
        self.copies.set_account(&TheAccount, Some(AccountRecord { money, ..before }));
    }

    /// Money and bounds of a key; `None` if there is no key.
    pub fn key(&mut self, id: KeyId) -> Result<Option<Key>, Unreadable> {
        if !self.has(Slot::Key(id)) {
            return Ok(None);
        }
        Ok(self.copies.key(&id).ok_or_else(|| unreadable(id))?.map(|balance| balance.of))
    }

    /// Changes a key that was read, or creates it.
    pub fn set_key(&mut self, id: KeyId, of: Key) {
        let before = self.copies.keys.get(&id).and_then(Option::as_ref);
        let last_entry = before.map_or(0, |balance| balance.last_entry);
        self.copies.set_key(&id, Some(Balance { of, last_entry }));
    }

    /// Money and bounds of a group; `None` if there is no group.
    pub fn group(&mut self, id: GroupId) -> Result<Option<Group>, Unreadable> {
        if !self.has(Slot::Group(id)) {
            return Ok(None);
        }
        Ok(self.copies.group(&id).ok_or_else(|| unreadable(id))?.map(|balance| balance.of))
    }

    /// Changes a group that was read, or creates it.
    pub fn set_group(&mut self, id: GroupId, of: Group) {
        let before = self.copies.groups.get(&id).and_then(Option::as_ref);
        let last_entry = before.map_or(0, |balance| balance.last_entry);
        self.copies.set_group(&id, Some(Balance { of, last_entry }));
    }

    /// Reads any other record of the account's space; `None` if there is none.
    pub fn get<T: for<'b> Decode<'b, ()>>(&mut self, name: &Name) -> Result<Option<T>, Unreadable> {
        self.view.get(name)
    }

    /// Returns whether there is a record of this name.
    pub fn has_record(&mut self, name: &Name) -> bool {
        self.view.has(name)
    }

    pub fn put(&mut self, name: &Name, message: &impl Encode<()>) {
        self.view.put(name, message);
    }

    /// Removes a record, if there is one.
    pub fn remove(&mut self, name: &Name) {
        self.view.remove(name);
    }

    /// Presumes that no record of this name exists. The commit guards this, and a conflict returns the record if it
    /// does exist.
    pub fn presume_absent(&mut self, name: &Name) {
        self.view.presume_absent(name);
    }

    /// Puts an entry into an index.
    pub fn enter(&mut self, index: Index, entry: Vec<u8>) {
        self.view.enter(index, entry);
    }

    /// Removes an entry from an index, if it is there.
    pub fn leave(&mut self, index: Index, entry: Vec<u8>) {
        self.view.leave(index, entry);
    }

    /// Adds any other write, without a guard.
    pub fn write(&mut self, write: Write) {
        self.view.write(write);
    }

    /// Gives access to all other records of the account's space.
    pub fn records(&mut self) -> &mut View {
        self.view
    }

    /// Writes an event with the change.
    pub fn event(&mut self, event: Event) {
        self.effects.event(event);
    }

    /// Writes events with the change, except thresholds that were reported before.
    pub fn tell(&mut self, events: Vec<Told>) {
        if events.is_empty() || !self.has(Slot::Account) {
            return;
        }
        let Some(Some(account)) = self.copies.account(&TheAccount) else { return };
        for told in events {
            self.effects.tell(self.copies, account.events, told);
        }
    }
}

fn unreadable(what: impl std::fmt::Display) -> Unreadable {
    Unreadable(format!("money of {what}"))
}
