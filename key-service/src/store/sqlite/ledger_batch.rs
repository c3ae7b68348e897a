//! Executes many commands to an account together: each row of the account and of the keys is read and written once.

use std::collections::HashMap;

use rusqlite::Connection;
use shared::{
    ids::{AccountId, GenerationId, GroupId, KeyId},
    time::Timestamp,
};

use super::tables::{
    accounts, budgets, events, holds, journal,
    spend::{self, Part},
    usage as counters,
};
use crate::store::{EventBounds, Outcomes};
use domain::{
    ledger::{self, CallEvents, Command, Entry, Outcome, Payer, Record, RecordId, Refused, State},
    usage::{self, Added, Counts, Day, Margin},
};

/// The commands of a caller.
pub(super) struct Request {
    pub(super) commands: Vec<Command>,
    pub(super) now: Timestamp,
    /// Bounds of the events of the account.
    pub(super) events: EventBounds,
}

/// Applies all requests in order, and returns the outcomes of each.
pub(super) fn execute(
    connection: &Connection,
    account: AccountId,
    requests: &[Request],
) -> rusqlite::Result<Vec<Outcomes>> {
    let Some(books) = accounts::books(connection, account)? else {
        let refused = |request: &Request| request.commands.iter().map(|_| Err(Refused::UnknownKey)).collect();
        return Ok(requests.iter().map(refused).collect());
    };
    let (books, keys, groups) = (Row::new(books), HashMap::new(), HashMap::new());
    let mut batch = LedgerBatch { connection, account, books, keys, groups, counted: HashMap::new() };
    let mut outcomes = Vec::with_capacity(requests.len());
    for request in requests {
        outcomes.push(batch.call(request)?);
    }
    batch.write()?;
    Ok(outcomes)
}

/// The state of an account during a batch.
struct LedgerBatch<'c> {
    connection: &'c Connection,
    account: AccountId,
    books: Row<accounts::Books>,
    /// `None` where the account does not have the key.
    keys: HashMap<KeyId, Row<Option<ledger::Key>>>,
    /// `None` where the account does not have the group.
    groups: HashMap<GroupId, Row<Option<ledger::Group>>>,
    /// Additions to the counters.
    counted: HashMap<(Day, Payer), Counts>,
}

/// A row with the old and the new value.
struct Row<T> {
    read: T,
    current: T,
}

impl<T: Clone + PartialEq> Row<T> {
    fn new(read: T) -> Self {
        Self { current: read.clone(), read }
    }

    fn changed(&self) -> bool {
        self.read != self.current
    }
}

impl LedgerBatch<'_> {
    /// Applies the commands of a call, and writes their events.
    fn call(&mut self, request: &Request) -> rusqlite::Result<Outcomes> {
        let mut events = CallEvents::new(self.account, &self.books.current.money, request.now);
        let commands = request.commands.iter();
        let outcomes = commands.map(|command| self.apply(command, request.now, &mut events));
        let outcomes = outcomes.collect::<rusqlite::Result<_>>()?;
        let told = events.finish(&self.books.current.money);
        events::append_told(self.connection, self.account, told, request.events)?;
        Ok(outcomes)
    }

    /// Loads the state, applies the command, and records the result. Holds and settlements are written at once: few
    /// change twice.
    fn apply(
        &mut self,
        command: &Command,
        now: Timestamp,
        events: &mut CallEvents,
    ) -> rusqlite::Result<Result<Outcome, Refused>> {
        let state = match self.load(command) {
            Err(rusqlite::Error::FromSqlConversionFailure(..)) => return Ok(Err(Refused::Damaged)),
            loaded => loaded?,
        };
        let state_before = state.clone();
        let (after, outcome) = match ledger::apply(state, command, now) {
            Ok(applied) => applied,
            Err(refused) => {
                events.refused(command, &state_before, &refused);
                return Ok(Err(refused));
            }
        };
        events.applied(command, &state_before, &after);
        let before = state_before.record;
        if let (Some(RecordId::Generation(id)), Some(entry)) =
            (command.record(), ledger::entry(&before, &after))
        {
            self.append(id, &before, &entry)?;
        }
        self.books.current.money = after.account;
        if let Some(row) = command.key().and_then(|id| self.keys.get_mut(&id)) {
            row.current = after.key;
        }
        for (id, group) in after.groups.into_iter().flatten() {
            if let Some(row) = self.groups.get_mut(&id) {
                row.current = Some(group);
            }
        }
        if let Some(id) = command.record()
            && after.record != before
        {
            holds::put(self.connection, self.account, id, &after.record, now)?;
        }
        Ok(Ok(outcome))
    }

    fn load(&mut self, command: &Command) -> rusqlite::Result<State> {
        let key = command.key().map(|id| self.key(id)).transpose()?.flatten();
        let record = command.record().map(|id| holds::record(self.connection, self.account, id));
        State::load(self.books.current.money, key, record.transpose()?.unwrap_or_default(), |id| {
            self.group(id)
        })
    }

    fn append(&mut self, id: GenerationId, before: &Record, entry: &Entry) -> rusqlite::Result<()> {
        self.books.current.entries += 1;
        let added = usage::added(before, entry);
        let counts = self.counted.entry((added.day, added.payer)).or_default();
        *counts = counts.plus(added.counts);
        journal::append(self.connection, self.account, self.books.current.entries, id, entry)
    }

    fn key(&mut self, id: KeyId) -> rusqlite::Result<Option<ledger::Key>> {
        if let Some(row) = self.keys.get(&id) {
            return Ok(row.current.clone());
        }
        let key = budgets::key(self.connection, self.account, id)?;
        self.keys.insert(id, Row::new(key.clone()));
        Ok(key)
    }

    fn group(&mut self, id: GroupId) -> rusqlite::Result<Option<ledger::Group>> {
        if let Some(row) = self.groups.get(&id) {
            return Ok(row.current.clone());
        }
        let group = budgets::group(self.connection, self.account, id)?;
        self.groups.insert(id, Row::new(group.clone()));
        Ok(group)
    }

    fn write(self) -> rusqlite::Result<()> {
        if self.books.changed() {
            accounts::put_books(self.connection, self.account, self.books.current)?;
        }
        for (id, row) in self.keys {
            if let (Some(before), Some(key), true) = (&row.read, &row.current, row.changed()) {
                budgets::put_key(self.connection, self.account, id, before, key)?;
            }
        }
        for (id, row) in self.groups {
            if let Some(group) = row.current.as_ref().filter(|_| row.changed()) {
                budgets::put_group(self.connection, self.account, id, group)?;
            }
        }
        let mut spent: HashMap<(Day, Part<'_>), Margin> = HashMap::new();
        for ((day, payer), counts) in &self.counted {
            let [group, _] = payer.groups;
            for part in std::iter::once(Part::Model(&payer.model)).chain(group.map(Part::Group)) {
                let sums = spent.entry((*day, part)).or_default();
                *sums = sums.plus(Margin::from(*counts));
            }
        }
        for ((day, part), margin) in spent {
            spend::add(self.connection, self.account, day, part, margin)?;
        }
        for ((day, payer), counts) in self.counted {
            counters::add(self.connection, self.account, &Added { payer, day, counts })?;
        }
        Ok(())
    }
}
