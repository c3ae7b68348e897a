//! Compares daily counters with the sums of their entries.

use std::collections::BTreeSet;

use shared::{ids::GroupId, money::NanoUsd};

use crate::{
    books::{
        audit::figure::{Counter, DayPart, Figure, Quantity, SumOwner, Wrong},
        usage::{
            COUNTED, Counts, Day, DayTotal, GroupDay, GroupKeys, HOURS, Hour, HoursOfDay, Margin, PartCounts,
            UserDay,
        },
    },
    ledger::Entry,
};

/// The counters of one record of daily sums.
#[derive(Clone, Debug)]
pub enum DayCounters {
    /// Counts for one key (with its groups) and one model.
    Payer(Box<DayTotal<Counts>>),
    Model(DayTotal<Margin>),
    Group(GroupDay),
    Users(UserDay),
}

impl DayCounters {
    /// Returns empty counters of the same kind.
    #[must_use]
    pub fn emptied(&self) -> Self {
        match self {
            Self::Payer(_) => Self::Payer(Box::default()),
            Self::Model(_) => Self::Model(DayTotal::default()),
            Self::Group(_) => Self::Group(GroupDay::default()),
            Self::Users(_) => Self::Users(UserDay::default()),
        }
    }

    /// Adds an entry. `keys` says under which [`GroupKeys`] a group counts the entry's key.
    pub fn add(&mut self, entry: &Entry, keys: Option<GroupKeys>, counts: Counts) {
        let hour = Hour::of(entry.settlement.at).of_day();
        match self {
            Self::Payer(of) => of.add(hour, counts),
            Self::Model(of) => of.add(hour, counts),
            Self::Group(of) => {
                let keys = keys.unwrap_or(GroupKeys::Own(None));
                of.add(&entry.settlement.payer.model, keys, hour, counts);
            }
            Self::Users(of) => of.add(entry.settlement.user().unwrap_or_default(), counts.into()),
        }
    }

    /// Returns the amount charged on the day.
    pub fn charged(&self) -> NanoUsd {
        match self {
            Self::Payer(of) => of.of.charged,
            Self::Model(of) => of.of.sums.charged,
            Self::Group(of) => {
                let parts = of.parts().map(|part| part.total.of);
                parts.fold(Margin::default(), Margin::plus).sums.charged
            }
            Self::Users(of) => {
                let named = of.named().map(|(_, counts)| counts);
                named.fold(of.others(), PartCounts::plus).charged
            }
        }
    }
}

/// Returns those counters of a day that differ from the sums of its entries.
pub(crate) fn compare(day: Day, of: &SumOwner, recorded: &DayCounters, proven: &DayCounters) -> Vec<Wrong> {
    let mut comparison = DayComparison { day, wrong: Vec::new() };
    comparison.compare(of, recorded, proven);
    comparison.wrong
}

/// A comparison of one day's counters.
struct DayComparison {
    day: Day,
    wrong: Vec<Wrong>,
}

impl DayComparison {
    fn compare(&mut self, of: &SumOwner, recorded: &DayCounters, proven: &DayCounters) {
        let day = self.day;
        match (of, recorded, proven) {
            (SumOwner::Payer(key, model), DayCounters::Payer(recorded), DayCounters::Payer(proven)) => {
                let figure = |counter| Figure::KeyCount(*key, day, model.clone(), counter);
                self.each(&Counter::of_counts(&recorded.of), &Counter::of_counts(&proven.of), figure);
                let part = |hour| DayPart::KeyHour(*key, model.clone(), hour);
                self.hours(&recorded.hours, &proven.hours, part);
            }
            (SumOwner::Model(model), DayCounters::Model(recorded), DayCounters::Model(proven)) => {
                let figure = |counter| Figure::ModelCount(day, model.clone(), counter);
                self.each(&Counter::of_margin(&recorded.of), &Counter::of_margin(&proven.of), figure);
                self.hours(&recorded.hours, &proven.hours, |hour| DayPart::ModelHour(model.clone(), hour));
            }
            (SumOwner::Group(group), DayCounters::Group(recorded), DayCounters::Group(proven)) => {
                self.group(*group, recorded, proven);
            }
            (SumOwner::Users(part), DayCounters::Users(recorded), DayCounters::Users(proven)) => {
                self.users(*part, recorded, proven);
            }
            // Cannot happen: a record's name determines the kind of its counters, so both kinds are equal.
            (_, _, _) => {}
        }
    }

    fn group(&mut self, group: GroupId, recorded: &GroupDay, proven: &GroupDay) {
        let day = self.day;
        let parts = recorded.parts().chain(proven.parts()).map(|part| (&part.model, part.keys));
        for (model, keys) in parts.collect::<BTreeSet<_>>() {
            let of = |sums: &GroupDay| {
                let found = sums.parts().find(|part| part.model == *model && part.keys == keys);
                found.map_or_else(DayTotal::default, |part| part.total.clone())
            };
            let (recorded, proven) = (of(recorded), of(proven));
            let part = || DayPart::GroupModel(group, model.to_string(), keys);
            let figure = |counter| Figure::Part(part(), day, counter);
            let charged = |of: Margin| [(Counter::Charged, Quantity::Usd(of.sums.charged))];
            self.each(&charged(recorded.of), &charged(proven.of), figure);
            self.each(&Counter::of_margin(&recorded.of), &Counter::of_margin(&proven.of), figure);
            let hour = |hour| DayPart::GroupHour(group, model.to_string(), keys, hour);
            self.hours(&recorded.hours, &proven.hours, hour);
        }
    }

    fn users(&mut self, part: u8, recorded: &UserDay, proven: &UserDay) {
        let users: BTreeSet<_> = recorded.named().chain(proven.named()).map(|(user, _)| user).collect();
        let of = |sums: &UserDay, user| {
            let found = sums.named().find(|(named, _)| *named == user);
            found.map_or_else(PartCounts::default, |(_, counts)| counts)
        };
        for user in users {
            self.part(&of(recorded, user), &of(proven, user), &DayPart::User(user.to_string()));
        }
        self.part(&recorded.others(), &proven.others(), &DayPart::OtherUsers(part));
    }

    fn hours(&mut self, recorded: &HoursOfDay, proven: &HoursOfDay, part: impl Fn(u8) -> DayPart) {
        for hour in 0..HOURS {
            self.part(&recorded.of(hour), &proven.of(hour), &part(hour));
        }
    }

    fn part(&mut self, recorded: &PartCounts, proven: &PartCounts, part: &DayPart) {
        let day = self.day;
        let figure = |counter| Figure::Part(part.clone(), day, counter);
        if recorded != proven {
            self.each(&Counter::of_part(recorded), &Counter::of_part(proven), figure);
        }
    }

    fn each(
        &mut self,
        recorded: &[(Counter, Quantity)],
        proven: &[(Counter, Quantity)],
        figure: impl Fn(Counter) -> Figure,
    ) {
        for ((counter, recorded), (_, proven)) in recorded.iter().zip(proven) {
            if recorded != proven && !is_bounded(*recorded) && !is_bounded(*proven) {
                self.wrong.push(Wrong { figure: figure(*counter), recorded: *recorded, proven: *proven });
            }
        }
    }
}

/// Returns whether a counter has reached its maximum, after which it proves nothing.
const fn is_bounded(quantity: Quantity) -> bool {
    match quantity {
        Quantity::Usd(amount) => amount.nanos() == COUNTED.cast_signed(),
        Quantity::Count(count) => count == COUNTED,
    }
}
