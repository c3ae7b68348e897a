//! A lane that takes one step per call: it decides, learns that its commit was written, or takes over the records from
//! a conflict. A model of several processes explores every order of such steps. Decisions, guards and writes are the
//! same as in real lanes.

mod sketch;

use domain::ledger::{Account, Command, Entry, Group, Key, Record as GenerationRecord};
use records::{Commit, Record, Revision, maps::SpaceMaps};
use shared::{
    ids::{AccountId, DepositId, GenerationId, GroupId, KeyId},
    time::Timestamp,
};

use crate::{
    batch::{Batch, Effects, Outcomes, commands::Commands},
    error::StoreError,
    kept::Retention,
    lanes::change::Change,
    names::{self, RecordName},
    sums::journal::{JournalEntry, read_entry},
    view::{Stored, View, reading},
};

/// A lane between two steps.
#[derive(Clone)]
pub struct SteppedLane {
    account: AccountId,
    kept: Retention,
    view: View,
}

impl SteppedLane {
    pub fn new(account: AccountId, kept: Retention) -> Self {
        Self { account, kept, view: View::of(&names::space(account)) }
    }

    /// Decides commands on the copies, after reading the records that have no copy.
    pub fn execute(
        &mut self,
        records: &SpaceMaps,
        commands: &[Command],
        now: Timestamp,
        revision: Revision,
    ) -> (Outcomes, Commit) {
        loop {
            let calls = [Commands { all: commands, now }];
            if let Some((mut outcomes, effects)) =
                Batch::new(&mut self.view, self.account, self.kept).decide(&calls)
            {
                return (outcomes.pop().unwrap_or_default(), self.commit(effects, revision));
            }
            self.read(records);
        }
    }

    /// Decides a change that is not a command.
    pub fn change(
        &mut self,
        records: &SpaceMaps,
        mut decide: impl FnMut(&mut Change<'_>),
        revision: Revision,
    ) -> Commit {
        loop {
            let mut change = Change::new(&mut self.view);
            decide(&mut change);
            if let Some(effects) = change.finish() {
                return self.commit(effects, revision);
            }
            self.read(records);
        }
    }

    pub fn written(&mut self, revision: Revision) {
        self.view.settle(revision);
    }

    /// Takes over the records from the answer, since the commit was not written.
    pub fn conflict(&mut self, present: &[(usize, Option<Record>)]) {
        self.view.replace(present.iter().cloned());
    }

    /// Appends a description of the copies without revisions. Two lanes with equal sketches decide and guard
    /// identically.
    pub fn sketch(&self, records: &SpaceMaps, sketch: &mut Vec<u8>) {
        self.view.sketch(records, sketch);
    }

    fn read(&mut self, records: &SpaceMaps) {
        for name in self.view.take_missing() {
            let record = records.record(&name).cloned();
            self.view.keep(name, record);
        }
    }

    fn commit(&self, effects: Effects, revision: Revision) -> Commit {
        effects.commit(&self.view, revision, self.kept)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    pub account: Account,
    pub keys: Vec<Key>,
    pub groups: Vec<Group>,
    /// Holds and bills of the requested generations.
    pub generations: Vec<GenerationRecord>,
    pub deposits: Vec<GenerationRecord>,
    pub journal: Vec<(GenerationId, Entry)>,
}

impl Books {
    /// Reads the books; `None` if a record is missing or unreadable, or if a generation has both a hold and the bill of
    /// an expiry.
    pub fn read(
        records: &SpaceMaps,
        keys: &[KeyId],
        groups: &[GroupId],
        generations: &[GenerationId],
        deposits: &[DepositId],
    ) -> Option<Self> {
        let generation = |id: &GenerationId| {
            let (record, expired) =
                (read(records, &names::generation(*id)).ok()?, read(records, &names::expired(*id)).ok()?);
            match (record, expired) {
                (record, None) => Some(record.unwrap_or_default()),
                (None, expired) => expired,
                (_, _) => None,
            }
        };
        let deposit = |id: &DepositId| Some(read(records, &names::deposit(*id)).ok()?.unwrap_or_default());
        Some(Self {
            account: read(records, &names::account()).ok()??.money,
            keys: keys
                .iter()
                .map(|id| Some(read(records, &names::key(*id)).ok()??.of))
                .collect::<Option<_>>()?,
            groups: groups
                .iter()
                .map(|id| Some(read(records, &names::group(*id)).ok()??.of))
                .collect::<Option<_>>()?,
            generations: generations.iter().map(generation).collect::<Option<_>>()?,
            deposits: deposits.iter().map(deposit).collect::<Option<_>>()?,
            journal: records.values(names::JOURNAL).map(|(_, value)| entry(value)).collect::<Option<_>>()?,
        })
    }
}

fn read<T: Stored>(records: &SpaceMaps, name: &RecordName<T>) -> Result<Option<T>, StoreError> {
    records.record(name).map(reading::value).transpose()
}

fn entry(value: &[u8]) -> Option<(GenerationId, Entry)> {
    let JournalEntry { generation, entry, .. } = read_entry(0, value)?;
    Some((generation, entry))
}
