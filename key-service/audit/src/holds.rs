//! Compares open holds with their index, which is used to sum holds and to let them expire.

use std::collections::{HashMap, HashSet};

use domain::{
    audit::{Auditor, Figure, Quantity},
    ledger::{Hold, Record as Generation},
};
use key_service_ledger::{
    StoreError, house,
    names::{self, DueMoney},
    reading::{no_answer, value},
    stored::House,
};
use records::{Answer, Cursor, Order, Question, Record, Set, Space};
use shared::{
    ids::{AccountId, GenerationId},
    money::NanoUsd,
};

use crate::{
    bounds::{ALL, AT_ONCE},
    reading::Books,
};

/// Number of sets of generations to read at once. Together they cover twelve hours. In an idle account, most of them
/// are empty.
const SETS_AT_ONCE: usize = 72;
/// Number of sets after the current set that are read too. Ids contain the time of a gateway's clock, which may be
/// ahead.
const SETS_AHEAD: u32 = 2;

/// Entries in the index of open holds, by generation. More than one entry for a generation is a fault.
struct Due(HashMap<GenerationId, Vec<Vec<u8>>>);

impl Due {
    fn of(entries: Vec<Vec<u8>>) -> Self {
        let mut due: HashMap<_, Vec<_>> = HashMap::with_capacity(entries.len());
        for entry in entries {
            if let Some((_, id)) = names::read_due(&entry) {
                due.entry(id).or_default().push(entry);
            }
        }
        Self(due)
    }

    fn entries(&self, id: GenerationId) -> &[Vec<u8>] {
        self.0.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the index contains exactly the hold's entry, or no entry if there is no hold.
    fn fits(&self, id: GenerationId, hold: Option<&Hold>) -> bool {
        match (hold, self.entries(id)) {
            (None, []) => true,
            (Some(hold), [entry]) => *entry == names::due(id, hold),
            (None | Some(_), _) => false,
        }
    }

    /// Returns the sum of the amounts in a generation's entries.
    fn amount(&self, id: GenerationId) -> NanoUsd {
        let amounts = self.entries(id).iter().filter_map(|entry| DueMoney::read(entry));
        NanoUsd::from_nanos(amounts.map(|due| due.amount.nanos()).fold(0, i64::saturating_add))
    }
}

impl Books<'_> {
    /// Compares each open hold with its index entry. If they differ, both are read again at one moment: the hold may
    /// have been opened or settled between the two reads.
    pub(super) async fn prove_holds(
        &self,
        account: AccountId,
        auditor: &mut Auditor,
    ) -> Result<(), StoreError> {
        let space = names::space(account);
        let due = self.read().entries(&space, names::DUE, (Vec::new(), None), Order::Ascending, ALL).await?;
        let due = Due::of(due);
        let mut fitting = HashSet::with_capacity(due.0.len());
        let mut doubted = Vec::new();
        self.each_generation(account, |id, generation| {
            if let Some(Generation::Open(hold)) = generation {
                if due.fits(id, Some(&hold)) {
                    fitting.insert(id);
                } else {
                    doubted.push(id);
                }
            }
        })
        .await?;
        let listed = due.0.keys().filter(|id| !fitting.contains(*id));
        doubted.extend(listed.copied());
        doubted.sort_unstable();
        doubted.dedup();
        for ids in doubted.chunks(AT_ONCE) {
            self.prove_doubted(&space, ids, auditor).await?;
        }
        Ok(())
    }

    /// Reads holds and index entries at one moment, and compares them.
    async fn prove_doubted(
        &self,
        space: &Space,
        ids: &[GenerationId],
        auditor: &mut Auditor,
    ) -> Result<(), StoreError> {
        let records = Question::Records(ids.iter().map(|id| names::generation(*id).into()).collect());
        let answers: [Answer; 2] = self
            .read()
            .ask(space, vec![records, Question::whole(names::DUE)])
            .await?
            .try_into()
            .map_err(|_| no_answer())?;
        let [Answer::Records(records), Answer::Entries(due)] = answers else { return Err(no_answer()) };
        let due = Due::of(due);
        for (id, record) in ids.iter().zip(&records) {
            let hold = match record.as_ref().and_then(read) {
                Some(Generation::Open(hold)) => Some(hold),
                Some(Generation::None | Generation::Closed(_) | Generation::Deposited(_)) | None => None,
            };
            if !due.fits(*id, hold.as_ref()) {
                compare(auditor, *id, hold.as_ref(), &due);
            }
        }
        Ok(())
    }

    /// Calls `each` for every generation that housekeeping has not dropped, with `None` for a generation that cannot be
    /// read.
    async fn each_generation(
        &self,
        account: AccountId,
        mut each: impl FnMut(GenerationId, Option<Generation>) + Send,
    ) -> Result<(), StoreError> {
        let space = names::space(account);
        let kept = self.read().get::<House>(&space, names::house()).await?;
        let kept = kept.unwrap_or_else(|| house::begin(account));
        let last = names::part(self.clock.now(), names::TEN_MINUTES).saturating_add(SETS_AHEAD);
        let parts = kept.held.iter().map(|held| held.part).chain(kept.generations..=last);
        let parts: Vec<u32> = parts.collect();
        for parts in parts.chunks(SETS_AT_ONCE) {
            let mut asked: Vec<(Set, Option<Cursor>)> =
                parts.iter().map(|part| (Set { table: names::GENERATIONS, part: *part }, None)).collect();
            while !asked.is_empty() {
                let questions = asked.iter().map(|(set, after)| Question::Set(*set, after.clone())).collect();
                let answers = self.read().ask(&space, questions).await?;
                let mut further = Vec::new();
                for ((set, _), answer) in asked.into_iter().zip(answers) {
                    let Answer::Set(records, next) = answer else { return Err(no_answer()) };
                    for (name, record) in &records {
                        if let Some(id) = GenerationId::from_slice(name) {
                            each(id, read(record));
                        }
                    }
                    further.extend(next.map(|next| (set, Some(next))));
                }
                asked = further;
            }
        }
        Ok(())
    }
}

/// Decodes the record of a generation; `None` if the record cannot be read.
fn read(record: &Record) -> Option<Generation> {
    value(record).ok().filter(|read| *read != Generation::None)
}

/// Reports how a hold differs from its index entry.
fn compare(auditor: &mut Auditor, id: GenerationId, hold: Option<&Hold>, due: &Due) {
    let (recorded, listed) = (hold.map_or(NanoUsd::ZERO, |hold| hold.amount), due.amount(id));
    let lease =
        due.entries(id).first().and_then(|entry| entry.first_chunk().copied()).map(u64::from_be_bytes);
    let lease_until = hold.map(|hold| hold.lease_until);
    match (lease_until, lease) {
        _ if recorded != listed => {
            auditor.quantity(Figure::Hold(id), Quantity::Usd(recorded), Quantity::Usd(listed));
        }
        (Some(recorded), Some(listed)) if recorded != listed => {
            auditor.quantity(Figure::HoldLease(id), Quantity::Count(recorded), Quantity::Count(listed));
        }
        (Some(_) | None, _) => {
            // Amount and lease are equal, so only the payers in the entry are wrong.
            auditor.quantity(Figure::Hold(id), Quantity::Usd(recorded), Quantity::Usd(NanoUsd::ZERO));
        }
    }
}
