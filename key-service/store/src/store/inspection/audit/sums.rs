//! Sums of days, compared with the entries of each day.

use std::collections::{BTreeMap, HashMap, hash_map::Entry as Slot};

use domain::{
    audit::{Auditor, Counter, Figure, Quantity},
    ledger::Entry,
    usage::{COUNTED, Counts, Day, Margin},
};
use key_service_ledger::{
    codec, messages,
    names::{self, PayerName},
};
use shared::{
    ids::{GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::expiries::{Adds, Expiries};

/// Sums that are in memory at a time, in some 150 MB: all days of most journals, or two days of 100,000 keys. The
/// oldest day is compared first.
const MOST_SUMS: usize = 300_000;

/// A recorded sum under its name.
pub(super) type Recorded = (Vec<u8>, messages::Sums);

/// The sums of the days that entries have reached.
pub(super) struct DaySums {
    /// First day of which all entries are there.
    whole_from: Day,
    /// Number of the last entry up to which every sum must exist.
    paid: u64,
    /// Days before this one were compared already.
    open_from: Day,
    days: BTreeMap<Day, HashMap<Vec<u8>, Sum>>,
    expiries: Expiries,
}

/// A sum with the entries so far.
struct Sum {
    recorded: Counters,
    last_entry: u64,
    charged: i128,
    /// Sum of the counters; `None` if an entry does not tell what it adds.
    counts: Option<Box<Counts>>,
}

#[derive(Clone, Copy)]
enum Counters {
    /// Counts of a key, its groups and a model.
    Payer(Counts),
    /// Sums of a model or of a group.
    Margin(Margin),
    /// The sum has no counters.
    Absent,
}

impl DaySums {
    /// Begins with the sums of a journal. `begins_at` is the time of its first entry, if there may have been earlier
    /// ones.
    pub(super) fn new(whole_from: Day, paid: u64, begins_at: Option<Timestamp>) -> Self {
        let expiries = Expiries::new(begins_at);
        Self { whole_from, paid, open_from: whole_from, days: BTreeMap::new(), expiries }
    }

    /// Returns whether the sums of the day must be loaded.
    pub(super) fn needs(&self, day: Day) -> bool {
        day >= self.open_from && !self.days.contains_key(&day)
    }

    /// Adds the sums of a day, unless they were dropped, and compares older days if there are many. Returns the number
    /// of the last entry that the sums count.
    pub(super) fn load(&mut self, auditor: &mut Auditor, day: Day, sums: Option<Vec<Recorded>>) -> u64 {
        let Some(sums) = sums else {
            // Those of earlier days were dropped too.
            self.open_from = self.open_from.max(day.plus(1));
            return 0;
        };
        let last = sums.iter().map(|(_, sums)| sums.last_entry).max().unwrap_or_default();
        let sum = |(name, sums): (Vec<u8>, messages::Sums)| {
            let last_entry = sums.last_entry;
            let recorded = match name.first() {
                Some(b'p') => Counters::Payer(codec::read_counts(sums).of),
                Some(_) | None => Counters::Margin(codec::read_margin(&sums).of),
            };
            (name, Sum::new(recorded, last_entry))
        };
        self.days.insert(day, sums.into_iter().map(sum).collect());
        while self.days.len() > 2 && self.days.values().map(HashMap::len).sum::<usize>() > MOST_SUMS {
            let Some((oldest, sums)) = self.days.pop_first() else { break };
            self.open_from = oldest.plus(1);
            compare(auditor, oldest, sums);
        }
        last
    }

    /// Adds an entry to the sums of its day.
    pub(super) fn add(&mut self, number: u64, generation: GenerationId, entry: &Entry) {
        let (paid, adds) = (self.paid, self.expiries.add(generation, entry));
        let Some(sums) = self.days.get_mut(&Day::of(entry.settlement.at)) else { return };
        let payer = &entry.settlement.payer;
        let [group, _] = payer.groups;
        let of_model = names::model_sum(&payer.model);
        let of = [Some(PayerName::of(payer).to_vec()), Some(of_model), group.map(names::group_sum)];
        for name in of.into_iter().flatten() {
            let sum = match sums.entry(name) {
                Slot::Occupied(sum) => sum.into_mut(),
                Slot::Vacant(_) if number > paid => continue,
                Slot::Vacant(absent) => absent.insert(Sum::new(Counters::Absent, paid)),
            };
            if number <= sum.last_entry {
                sum.add(entry, &adds);
            }
        }
    }

    /// Compares everything that was not compared yet.
    pub(super) fn finish(self, auditor: &mut Auditor) {
        debug_assert!(self.whole_from <= self.open_from);
        for (day, sums) in self.days {
            compare(auditor, day, sums);
        }
    }
}

impl Sum {
    fn new(recorded: Counters, last_entry: u64) -> Self {
        Self { recorded, last_entry, charged: 0, counts: Some(Box::default()) }
    }

    fn add(&mut self, entry: &Entry, adds: &Adds) {
        self.charged += i128::from(entry.delta.nanos());
        self.counts = match (self.counts.take(), adds) {
            (Some(counts), Adds::Counts(added)) => Some(Box::new(counts.plus(**added))),
            (None, _) | (Some(_), Adds::Unknown) => None,
        };
    }
}

impl Counters {
    fn charged(&self) -> NanoUsd {
        match self {
            Self::Payer(counts) => counts.charged,
            Self::Margin(margin) => margin.sums.charged,
            Self::Absent => NanoUsd::ZERO,
        }
    }
}

fn compare(auditor: &mut Auditor, day: Day, sums: HashMap<Vec<u8>, Sum>) {
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (name, Sum { recorded, charged, counts, last_entry: _ }) in sums {
        let Some(of) = SumOwner::read(&name) else { continue };
        if !is_bounded(Quantity::Usd(recorded.charged())) && charged < i128::from(COUNTED) {
            auditor.sum(of.charged(day), recorded.charged(), charged);
        }
        let Some(counts) = counts else { continue };
        let (proven, of_margin) = (Counter::of_counts(&counts), Counter::of_margin(&Margin::from(*counts)));
        match recorded {
            Counters::Payer(recorded) => {
                each_counter(auditor, (&of, day), &Counter::of_counts(&recorded), &proven);
            }
            Counters::Margin(recorded) => {
                each_counter(auditor, (&of, day), &Counter::of_margin(&recorded), &of_margin);
            }
            // A missing sum shows in the charge or, if the requests were free, in their number.
            Counters::Absent if charged == 0 => {
                each_counter(auditor, (&of, day), &Counter::of_margin(&Margin::default())[..1], &of_margin);
            }
            Counters::Absent => {}
        }
    }
}

fn each_counter(
    auditor: &mut Auditor,
    (of, day): (&SumOwner, Day),
    recorded: &[(Counter, Quantity)],
    proven: &[(Counter, Quantity)],
) {
    for ((counter, recorded), (_, proven)) in recorded.iter().zip(proven) {
        if !is_bounded(*recorded) && !is_bounded(*proven) {
            auditor.quantity(of.counter(day, *counter), *recorded, *proven);
        }
    }
}

/// Returns whether a counter is at its bound, so that it proves nothing.
const fn is_bounded(quantity: Quantity) -> bool {
    match quantity {
        Quantity::Usd(amount) => amount.nanos() >= COUNTED.cast_signed(),
        Quantity::Count(count) => count >= COUNTED,
    }
}

enum SumOwner {
    Payer(KeyId, String),
    Model(String),
    Group(GroupId),
}

impl SumOwner {
    fn read(name: &[u8]) -> Option<Self> {
        match name.split_first()? {
            (b'p', _) => PayerName::read(name).map(|payer| Self::Payer(payer.key, payer.model)),
            (b'm', model) => Some(Self::Model(String::from_utf8_lossy(model).into_owned())),
            (b'g', group) => GroupId::from_slice(group).map(Self::Group),
            (_, _) => None,
        }
    }

    fn charged(&self, day: Day) -> Figure {
        match self {
            Self::Payer(key, model) => Figure::KeySum(*key, day, model.clone()),
            Self::Model(model) => Figure::ModelSum(day, model.clone()),
            Self::Group(group) => Figure::GroupSum(*group, day),
        }
    }

    fn counter(&self, day: Day, counter: Counter) -> Figure {
        match self {
            Self::Payer(key, model) => Figure::KeyCount(*key, day, model.clone(), counter),
            Self::Model(model) => Figure::ModelCount(day, model.clone(), counter),
            Self::Group(group) => Figure::GroupCount(*group, day, counter),
        }
    }
}
