//! Compares the journal with remembered bills. The store remembers bills so that no generation is billed twice.

use std::collections::{BTreeMap, HashMap};

use domain::{
    audit::{Auditor, Stored},
    ledger::{Ending, Record as Generation, Settlement},
};
use key_service_ledger::{
    StoreError, house,
    journal::JournalEntry,
    names::{self, RecordName},
    reading::{no_answer, value},
    stored::House,
};
use records::{Answer, Name, Order, Question, Record, Space};
use shared::ids::{AccountId, GenerationId};

use crate::{
    bounds::{ALL, AT_ONCE},
    reading::{Books, journal_entry},
};

/// State of the comparison of remembered bills with the journal.
pub(super) struct RememberedBills {
    account: AccountId,
    /// Which bills housekeeping had dropped before the audit.
    house: House,
    /// Bills in the journal that differ from the remembered bill. A later entry may explain the difference.
    doubted: BTreeMap<GenerationId, Settlement>,
}

impl RememberedBills {
    /// Returns whether the store still remembered the bill when the audit began.
    fn may_have(&self, generation: GenerationId, bill: &Settlement) -> bool {
        must_have(&self.house, &name(generation, bill.ending), bill.ending)
    }
}

impl Books<'_> {
    pub(super) async fn begin_remembered(&self, account: AccountId) -> Result<RememberedBills, StoreError> {
        let house = self.read().get(&names::space(account), names::house()).await?;
        let house = house.unwrap_or_else(|| house::begin(account));
        Ok(RememberedBills { account, house, doubted: BTreeMap::new() })
    }

    /// For each generation in these entries, compares its last entry with its remembered bill.
    pub(super) async fn compare_remembered(
        &self,
        bills: &mut RememberedBills,
        entries: &[JournalEntry],
    ) -> Result<(), StoreError> {
        let mut last = HashMap::new();
        for JournalEntry { generation, entry, .. } in entries {
            last.insert(*generation, &entry.settlement);
        }
        last.retain(|generation, bill| bills.may_have(*generation, bill));
        if last.is_empty() {
            return Ok(());
        }
        let last: Vec<_> = last.into_iter().collect();
        let asked = last.iter().map(|(generation, bill)| name(*generation, bill.ending)).collect();
        let answers = self.read().ask(&names::space(bills.account), vec![with_house(asked)]).await?;
        let [Answer::Records(records)] = &answers[..] else { return Err(no_answer()) };
        let (house, records) = records.split_first().ok_or_else(no_answer)?;
        let house = read_house(bills.account, house.as_ref())?;
        for ((generation, bill), record) in last.into_iter().zip(records) {
            if fits(&house, generation, bill, record.as_ref()) {
                bills.doubted.remove(&generation);
            } else {
                bills.doubted.insert(generation, bill.clone());
            }
        }
        Ok(())
    }

    /// Compares the doubted bills again. Reads them together with the entries from `next` on, at one moment.
    pub(super) async fn finish_remembered(
        &self,
        RememberedBills { account, doubted, .. }: RememberedBills,
        next: u64,
        auditor: &mut Auditor,
    ) -> Result<(), StoreError> {
        let (space, mut doubted): (Space, Vec<_>) = (names::space(account), doubted.into_iter().collect());
        for doubted in doubted.chunks_mut(AT_ONCE) {
            let of_each = |(generation, _): &(GenerationId, _)| {
                [Ending::Captured, Ending::Expired].map(|ending| name(*generation, ending))
            };
            let asked = with_house(doubted.iter().flat_map(of_each).collect());
            let (log, order) = (names::JOURNAL, Order::Ascending);
            let later = Question::Values { log, from: next, to: u64::MAX, order, limit: ALL };
            let answers: [Answer; 2] =
                self.read().ask(&space, vec![asked, later]).await?.try_into().map_err(|_| no_answer())?;
            let [Answer::Records(records), Answer::Values(later)] = answers else { return Err(no_answer()) };
            let mut last = HashMap::new();
            for (number, value) in later {
                let JournalEntry { generation, entry, .. } = journal_entry(number, &value)?;
                last.insert(generation, entry.settlement);
            }
            let (house, records) = records.split_first().ok_or_else(no_answer)?;
            let house = read_house(account, house.as_ref())?;
            for ((generation, bill), records) in doubted.iter_mut().zip(records.chunks_exact(2)) {
                if let Some(later) = last.remove(generation) {
                    *bill = later;
                }
                let record = match bill.ending {
                    Ending::Captured | Ending::Late => &records[0],
                    Ending::Expired => &records[1],
                };
                if !fits(&house, *generation, bill, record.as_ref()) {
                    auditor.missing(Stored::Bill(*generation));
                }
            }
        }
        Ok(())
    }
}

/// Returns the name of a bill's record. The bill of an expired hold has a separate record, which is kept longer.
fn name(generation: GenerationId, ending: Ending) -> RecordName<Generation> {
    match ending {
        Ending::Captured | Ending::Late => names::generation(generation),
        Ending::Expired => names::expired(generation),
    }
}

/// Returns a question that asks for housekeeping's record and then for these records.
fn with_house(names: Vec<RecordName<Generation>>) -> Question {
    let names = names.into_iter().map(Name::from);
    Question::Records(std::iter::once(names::house().into()).chain(names).collect())
}

fn read_house(account: AccountId, house: Option<&Record>) -> Result<House, StoreError> {
    Ok(house.map(value).transpose()?.unwrap_or_else(|| house::begin(account)))
}

/// Returns whether housekeeping still keeps the set that contains the bill's record.
fn must_have(house: &House, name: &Name, ending: Ending) -> bool {
    let part = name.set.part;
    match ending {
        Ending::Captured | Ending::Late => {
            part >= house.generations || house.held.iter().any(|held| held.part == part)
        }
        Ending::Expired => part >= house.expired,
    }
}

fn fits(house: &House, generation: GenerationId, bill: &Settlement, record: Option<&Record>) -> bool {
    match record {
        None => !must_have(house, &name(generation, bill.ending), bill.ending),
        Some(record) => {
            let read = value(record);
            matches!(read, Ok(Generation::Closed(remembered)) if remembered == *bill)
        }
    }
}
