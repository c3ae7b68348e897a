//! Changes to an account that are not commands of the ledger, for example creating a key, lowering a limit or inviting
//! a member.

use std::ops::{Deref, DerefMut};

use domain::{
    event::Event,
    ledger::{Account, Group, Key, Told},
};
use shared::{
    ids::{GroupId, KeyId},
    time::Timestamp,
};

use crate::{
    batch::effects::Effects,
    names,
    stored::{AccountRecord, Balance},
    view::{Unreadable, View},
};

/// A [`View`] of an account's space in which a change is decided, with access to money and events. The commit of every
/// change has a guard on the turn.
pub struct Change<'a> {
    view: &'a mut View,
    effects: Effects,
}

impl Deref for Change<'_> {
    type Target = View;

    fn deref(&self) -> &View {
        self.view
    }
}

impl DerefMut for Change<'_> {
    fn deref_mut(&mut self) -> &mut View {
        self.view
    }
}

impl<'a> Change<'a> {
    pub(crate) fn new(view: &'a mut View) -> Self {
        view.begin();
        view.has(&names::turn());
        Self { view, effects: Effects::default() }
    }

    /// Returns the effects to commit; `None` if records must be read before the change can be decided.
    pub(crate) fn finish(mut self) -> Option<Effects> {
        let mut effects = std::mem::take(&mut self.effects);
        if effects.events_len() > 0 {
            self.view.need(&names::events());
            if let Ok(Some(account)) = self.view.found(&names::account()).map(Option::<&_>::copied) {
                effects = effects.numbered(&account);
                let events = account.events + effects.events_len();
                self.view.put(&names::account(), AccountRecord { events, ..account });
                effects.weigh_events(self.view);
            }
        }
        (!self.view.is_missing_some()).then_some(effects)
    }

    /// Returns the account's money; `None` if there is no account.
    pub fn account(&mut self) -> Result<Option<Account>, Unreadable> {
        Ok(self.view.look(&names::account())?.map(|account| account.money))
    }

    /// Returns the time from which a window counts if the window is set now.
    pub fn windows_begin(&mut self, now: Timestamp) -> Result<Timestamp, Unreadable> {
        Ok(self.account()?.map_or(now, |account| account.windows_begin(now)))
    }

    /// Changes the account's money, or creates the account.
    pub fn set_account(&mut self, money: Account) {
        let before = self.view.peek(&names::account()).copied().unwrap_or_default();
        self.view.put(&names::account(), AccountRecord { money, ..before });
    }

    /// Returns a key's money and limits; `None` if there is no key.
    pub fn key(&mut self, id: KeyId) -> Result<Option<Key>, Unreadable> {
        Ok(self.view.look(&names::key(id))?.map(|balance| balance.of.clone()))
    }

    /// Changes a key that has been read, or creates a new one.
    pub fn set_key(&mut self, id: KeyId, of: Key) {
        let last_entry = self.view.peek(&names::key(id)).map_or(0, |balance| balance.last_entry);
        self.view.put(&names::key(id), Balance { of, last_entry });
    }

    /// Returns a group's money and limits; `None` if there is no group.
    pub fn group(&mut self, id: GroupId) -> Result<Option<Group>, Unreadable> {
        Ok(self.view.look(&names::group(id))?.map(|balance| balance.of.clone()))
    }

    /// Changes a group that has been read, or creates a new one.
    pub fn set_group(&mut self, id: GroupId, of: Group) {
        let last_entry = self.view.peek(&names::group(id)).map_or(0, |balance| balance.last_entry);
        self.view.put(&names::group(id), Balance { of, last_entry });
    }

    /// Adds an event that is written with the change.
    pub fn event(&mut self, event: Event) {
        self.effects.event(event);
    }

    /// Adds events about thresholds that are written with the change, except for thresholds that were reported before.
    pub fn tell(&mut self, events: Vec<Told>) {
        if events.is_empty() {
            return;
        }
        let last = self.view.found(&names::account()).map(|account| account.map(|account| account.events));
        let Ok(Some(last)) = last else { return };
        for told in events {
            self.effects.tell(self.view, last, told);
        }
    }
}
