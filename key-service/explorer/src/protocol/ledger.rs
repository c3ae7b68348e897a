//! Computes the expected books: applies the commands one after another with the ledger's rules only, without copies and
//! guards.

use domain::ledger::{
    Command, Outcome, RecordId, Refused, State, apply, entry,
    histories::{group, key},
};
use ledger::{Outcomes, stepped::Books};
use records::maps::SpaceMaps;
use shared::{
    ids::{GenerationId, GroupId, KeyId},
    time::Timestamp,
};

use super::{
    sent::{Job, Sent},
    setup::{GROUPS, Setup, deposits, generation},
};

impl Setup {
    /// Returns the outcomes that a commit's job should have if these are the books before it, and the books that should
    /// follow.
    pub(super) fn apply(&self, books: &Books, sent: &Sent) -> (Outcomes, Books) {
        let mut books = books.clone();
        let commands = self.commands(&sent.job);
        if let (Job::Act(act), true) = (&sent.job, commands.is_empty()) {
            self.acts[*act].adopt(&mut books, sent.now);
        }
        let outcomes = commands.iter().map(|command| self.run(&mut books, command, sent.now)).collect();
        (outcomes, books)
    }

    fn run(&self, books: &mut Books, command: &Command, now: Timestamp) -> Result<Outcome, Refused> {
        let place_of_key = command.key().and_then(|id| self.keys().position(|of| of == id));
        let record = match command.record() {
            None => None,
            Some(RecordId::Generation(id)) => {
                let place = self.generations().position(|of| of == id);
                place.map(|place| &mut books.generations[place])
            }
            Some(RecordId::Deposit(id)) => {
                let place = deposits().iter().position(|of| *of == id);
                place.map(|place| &mut books.deposits[place])
            }
        };
        let before = record.as_deref().cloned().unwrap_or_default();
        let found = |id| groups().position(|of| of == id).map(|place| books.groups[place].clone());
        let state = State::load(
            books.account,
            place_of_key.map(|place| books.keys[place].clone()),
            before.clone(),
            command.wallet(),
            |id| Ok::<_, Refused>(found(id)),
        )?;
        let (after, outcome) = apply(state, command, now)?;
        if let (Some(RecordId::Generation(id)), Some(entry)) = (command.record(), entry(&before, &after)) {
            books.journal.push((id, entry));
        }
        if let Some(record) = record {
            *record = after.record;
        }
        if let (Some(place), Some(key)) = (place_of_key, after.key) {
            books.keys[place] = key;
        }
        for (id, group) in after.groups.into_iter().flatten() {
            if let Some(place) = groups().position(|of| of == id) {
                books.groups[place] = group;
            }
        }
        books.account = after.account;
        Ok(outcome)
    }

    /// Reads the books from the records.
    pub(super) fn books(&self, store: &SpaceMaps) -> Option<Books> {
        let (keys, groups) = (self.keys().collect::<Vec<_>>(), groups().collect::<Vec<_>>());
        Books::read(store, &keys, &groups, &self.generations().collect::<Vec<_>>(), &deposits())
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = KeyId> {
        (0..).zip(&self.limits).map(|(number, _)| key(number))
    }

    fn generations(&self) -> impl Iterator<Item = GenerationId> {
        (0..self.requests.len()).map(generation)
    }
}

pub(super) fn groups() -> impl Iterator<Item = GroupId> {
    (0..GROUPS).map(group)
}
