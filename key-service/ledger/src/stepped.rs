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
    batch::{Batch, Decided, Effects, Outcomes, commands::Commands},
    copies::{Copies, Expired, Slot, TheAccount},
    kept::Retention,
    lanes::change::Change,
    names,
    sums::journal::{JournalEntry, read_entry},
    view::View,
};

/// A lane between two steps.
#[derive(Clone)]
pub struct SteppedLane {
    account: AccountId,
    kept: Retention,
    copies: Copies,
}

impl SteppedLane {
    pub fn new(account: AccountId, kept: Retention) -> Self {
        Self { account, kept, copies: Copies::default() }
    }

    /// Decides commands on the copies, after reading records without one.
    pub fn execute(
        &mut self,
        records: &SpaceMaps,
        commands: &[Command],
        now: Timestamp,
        revision: Revision,
    ) -> (Outcomes, Commit) {
        loop {
            let calls = [Commands { all: commands, now }];
            match Batch::new(&mut self.copies, self.account, self.kept).decide(&calls) {
                Decided::Outcomes(mut outcomes, effects) => {
                    return (outcomes.pop().unwrap_or_default(), self.commit(effects, revision));
                }
                Decided::Missing(slots) => self.read(records, slots),
            }
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
            let mut view = View::default();
            let mut change = Change::new(&mut self.copies, &mut view);
            decide(&mut change);
            match change.finish() {
                Ok(effects) => return self.commit(effects, revision),
                Err(slots) => {
                    self.copies.roll_back();
                    self.read(records, slots);
                }
            }
        }
    }

    pub fn written(&mut self, revision: Revision) {
        self.copies.settle(revision);
    }

    /// Takes over the records from the answer, since the commit was not written.
    pub fn conflict(&mut self, present: &[(usize, Option<Record>)]) {
        self.copies.replace(present);
    }

    /// Appends a description of the copies without revisions. Two lanes with equal sketches decide and guard alike.
    pub fn sketch(&self, records: &SpaceMaps, sketch: &mut Vec<u8>) {
        self.copies.sketch(records, sketch);
    }

    fn read(&mut self, records: &SpaceMaps, slots: Vec<Slot>) {
        for slot in slots {
            let record = records.record(&slot.name());
            self.copies.keep(slot, record);
        }
    }

    fn commit(&self, effects: Effects, revision: Revision) -> Commit {
        effects.commit(&self.copies, revision, self.kept)
    }
}

/// An account's books, as recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    pub account: Account,
    pub keys: Vec<Key>,
    pub groups: Vec<Group>,
    /// Holds and bills of generations, as asked for.
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
        let mut copies = Copies::default();
        let slots = std::iter::once(Slot::Account)
            .chain(keys.iter().copied().map(Slot::Key))
            .chain(groups.iter().copied().map(Slot::Group))
            .chain(generations.iter().flat_map(|id| [Slot::Generation(*id), Slot::Expired(*id)]))
            .chain(deposits.iter().copied().map(Slot::Deposit));
        for slot in slots {
            let record = records.record(&slot.name());
            copies.keep(slot, record);
        }
        let key = |id| Some(copies.keys.get(id)?.as_ref()?.of.clone());
        let group = |id| Some(copies.groups.get(id)?.as_ref()?.of.clone());
        let generation = |id: &GenerationId| {
            let (record, expired) = (copies.generations.get(id)?, copies.expired.get(&Expired(*id))?);
            match (record, expired) {
                (record, GenerationRecord::None) => Some(record.clone()),
                (GenerationRecord::None, expired) => Some(expired.clone()),
                (_, _) => None,
            }
        };
        Some(Self {
            account: copies.account.get(&TheAccount)?.as_ref()?.money,
            keys: keys.iter().map(key).collect::<Option<_>>()?,
            groups: groups.iter().map(group).collect::<Option<_>>()?,
            generations: generations.iter().map(generation).collect::<Option<_>>()?,
            deposits: deposits.iter().map(|id| copies.deposits.get(id).cloned()).collect::<Option<_>>()?,
            journal: records.values(names::JOURNAL).map(|(_, value)| entry(value)).collect::<Option<_>>()?,
        })
    }
}

fn entry(value: &[u8]) -> Option<(GenerationId, Entry)> {
    let JournalEntry { generation, entry, .. } = read_entry(0, value)?;
    Some((generation, entry))
}
