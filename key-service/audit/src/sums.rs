//! Compares daily sums with the entries of each day.

use std::collections::{BTreeMap, HashMap, hash_map::Entry as Slot};

use domain::{
    audit::{Auditor, DayCounters, Figure, Quantity, SumOwner},
    ledger::Entry,
    usage::{COUNTED, Day, DayTotal, GroupDay, GroupKeys, Hour, UserDay, counting_groups, part_of_user},
};
use key_service_ledger::{
    StoreError,
    names::{self, PayerName},
    reading::value,
    stored::Balance,
};
use records::Record;
use shared::{
    ids::{GenerationId, GroupId},
    time::Timestamp,
};

use crate::expiries::{Adds, Expiries};

/// Maximum number of sums in memory, which take about 200 MB: all days of most journals, or two days of 100,000 keys.
/// When there are more, the oldest day is compared and forgotten.
const MOST_SUMS: usize = 250_000;

/// The recorded sums of the days that the audit has reached, and what their entries add up to.
pub(super) struct DaySums {
    /// First day for which the journal still has all entries.
    whole_from: Day,
    /// Number of the last entry that the recorded sums must include.
    paid: u64,
    /// Days before this day have been compared.
    open_from: Day,
    days: BTreeMap<Day, HashMap<Vec<u8>, SumWithEntries>>,
    expiries: Expiries,
}

/// A recorded sum, with the number of the last entry that it includes.
pub(super) struct RecordedSum {
    counters: DayCounters,
    last_entry: u64,
    /// Whether the record is missing although the journal has entries for it.
    is_absent: bool,
}

/// A recorded sum, and what its entries so far add up to.
struct SumWithEntries {
    recorded: RecordedSum,
    charged: i128,
    /// Number of the last entry.
    last: u64,
    /// Sum of the entries' counters; `None` after an entry if the audit cannot know what it adds.
    proven: Option<DayCounters>,
}

impl RecordedSum {
    /// Reads a record from a set of daily sums.
    pub(super) fn read(table: u8, record: &Record) -> Result<Self, StoreError> {
        Ok(match table {
            names::SUMS => Self::of(value(record)?, |of| DayCounters::Payer(Box::new(of))),
            names::SPEND => Self::of(value(record)?, DayCounters::Model),
            names::GROUP_SPEND => Self::of(value(record)?, DayCounters::Group),
            _ => Self::of(value(record)?, DayCounters::Users),
        })
    }

    fn of<T>(Balance { of, last_entry }: Balance<T>, counters: impl FnOnce(T) -> DayCounters) -> Self {
        Self { counters: counters(of), last_entry, is_absent: false }
    }
}

impl DaySums {
    /// Creates empty sums for reading a journal from its start. If earlier entries may have been dropped, `begins_at`
    /// is the time of its first remaining entry.
    pub(super) fn new(whole_from: Day, paid: u64, begins_at: Option<Timestamp>) -> Self {
        let expiries = Expiries::new(begins_at);
        Self { whole_from, paid, open_from: whole_from, days: BTreeMap::new(), expiries }
    }

    /// Returns whether the sums of the day still have to be loaded.
    pub(super) fn needs(&self, day: Day) -> bool {
        day >= self.open_from && !self.days.contains_key(&day)
    }

    /// Takes the recorded sums of a day; `None` if housekeeping has dropped them. If too many sums are in memory,
    /// compares and forgets older days. Returns the number of the last entry that the sums include.
    pub(super) fn load(
        &mut self,
        auditor: &mut Auditor,
        day: Day,
        sums: Option<Vec<(Vec<u8>, RecordedSum)>>,
    ) -> u64 {
        let Some(sums) = sums else {
            // Housekeeping drops days in order, so the sums of earlier days are missing too.
            self.open_from = self.open_from.max(day.plus(1));
            return 0;
        };
        let last = sums.iter().map(|(_, sum)| sum.last_entry).max().unwrap_or_default();
        let sum = |(name, recorded): (Vec<u8>, RecordedSum)| (name, SumWithEntries::of(recorded));
        self.days.insert(day, sums.into_iter().map(sum).collect());
        while self.days.len() > 2 && self.days.values().map(HashMap::len).sum::<usize>() > MOST_SUMS {
            let Some((oldest, sums)) = self.days.pop_first() else { break };
            self.open_from = oldest.plus(1);
            compare_all(auditor, oldest, sums);
        }
        last
    }

    /// Adds an entry to the sums of its day.
    pub(super) fn add(&mut self, number: u64, generation: GenerationId, entry: &Entry) {
        let (paid, adds) = (self.paid, self.expiries.add(generation, entry));
        let hour = Hour::of(entry.settlement.at);
        let Some(sums) = self.days.get_mut(&hour.day()) else { return };
        let (payer, user) = (&entry.settlement.payer, entry.settlement.user());
        let of_payer = (PayerName::of(payer).to_vec(), DayCounters::Payer(Box::default()), None);
        let of_model =
            (names::model_sum(&payer.model).to_vec(), DayCounters::Model(DayTotal::default()), None);
        let of_user = |user| {
            (names::user_sums(part_of_user(user)).to_vec(), DayCounters::Users(UserDay::default()), None)
        };
        let of_group = |(group, keys)| {
            (names::group_sum(group).to_vec(), DayCounters::Group(GroupDay::default()), Some(keys))
        };
        let others = user.map(of_user).into_iter().chain(counting_groups(payer.groups).map(of_group));
        for (name, absent, keys) in [of_payer, of_model].into_iter().chain(others) {
            let sum = match sums.entry(name) {
                Slot::Occupied(sum) => sum.into_mut(),
                Slot::Vacant(_) if number > paid => continue,
                Slot::Vacant(vacant) => {
                    let recorded = RecordedSum { counters: absent, last_entry: paid, is_absent: true };
                    vacant.insert(SumWithEntries::of(recorded))
                }
            };
            if number <= sum.recorded.last_entry {
                sum.last = number;
                sum.add(entry, keys, &adds);
            }
        }
    }

    /// Compares everything that has not been compared yet.
    pub(super) fn finish(self, auditor: &mut Auditor) {
        debug_assert!(self.whole_from <= self.open_from);
        for (day, sums) in self.days {
            compare_all(auditor, day, sums);
        }
    }
}

impl SumWithEntries {
    fn of(recorded: RecordedSum) -> Self {
        let proven = Some(recorded.counters.emptied());
        Self { recorded, charged: 0, last: 0, proven }
    }

    fn add(&mut self, entry: &Entry, keys: Option<GroupKeys>, adds: &Adds) {
        self.charged += i128::from(entry.delta.nanos());
        match (&mut self.proven, adds) {
            (Some(proven), Adds::Counts(counts)) => proven.add(entry, keys, **counts),
            (proven, _) => *proven = None,
        }
    }
}

fn compare_all(auditor: &mut Auditor, day: Day, sums: HashMap<Vec<u8>, SumWithEntries>) {
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, SumWithEntries { recorded, charged, last, proven }) in sums {
        let Some(of) = read_owner(&name) else { continue };
        if !recorded.is_absent {
            let (recorded, proven) = (Quantity::Count(recorded.last_entry), Quantity::Count(last));
            auditor.quantity(Figure::LastOfDay(of.clone(), day), recorded, proven);
        }
        let recorded_charge = recorded.counters.charged();
        if recorded_charge.nanos() != COUNTED.cast_signed() && charged < i128::from(COUNTED) {
            auditor.sum(day, &of, recorded_charge, charged);
        }
        // A missing sum is reported once: by its charge or, if all its requests were free, by its counters.
        let is_told = recorded.is_absent && charged != 0;
        if let Some(proven) = proven.filter(|_| !is_told) {
            auditor.counters(day, &of, &recorded.counters, &proven);
        }
    }
}

/// Reads from a record's name whose sums the record contains.
fn read_owner(name: &[u8]) -> Option<SumOwner> {
    match name.split_first()? {
        (b'p', _) => PayerName::read(name).map(|payer| SumOwner::Payer(payer.key, payer.model)),
        (b'm', model) => Some(SumOwner::Model(String::from_utf8_lossy(model).into_owned())),
        (b'g', group) => GroupId::from_slice(group).map(SumOwner::Group),
        (b'u', [part]) => Some(SumOwner::Users(*part)),
        (_, _) => None,
    }
}
