//! A day's counts by hour, by user, and by model within a group.

use std::sync::Arc;

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{ids::GroupId, money::NanoUsd};

use crate::{
    books::usage::counts::{Counts, Margin, Sums, difference, stopped, sum},
    ledger::GroupChain,
};

/// Number of hours in a UTC day.
pub const HOURS: u8 = 24;
/// The users of a day are spread over this many records, so that a bill rewrites only one of them.
pub const USER_PARTS: u8 = 8;
/// Maximum number of users that one record counts separately for a day. A bill rewrites the whole record, about 1.5 kB
/// when full.
const NAMED_USERS: usize = 32;

/// Counts for a part of a day. They have fewer fields than the counts for a whole day. None exceeds
/// [`COUNTED`](crate::books::usage::COUNTED).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PartCounts {
    /// Billed generations, including free generations.
    pub requests: u64,
    pub prompt: u64,
    pub cached: u64,
    pub completion: u64,
    /// Amount charged. Negative if corrections returned more than was billed.
    pub charged: NanoUsd,
}

impl PartCounts {
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            requests: stopped(self.requests, other.requests),
            prompt: stopped(self.prompt, other.prompt),
            cached: stopped(self.cached, other.cached),
            completion: stopped(self.completion, other.completion),
            charged: sum(self.charged, other.charged),
        }
    }

    /// Subtracts other counts. A number that would become negative is zero.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            prompt: self.prompt.saturating_sub(other.prompt),
            cached: self.cached.saturating_sub(other.cached),
            completion: self.completion.saturating_sub(other.completion),
            charged: difference(self.charged, other.charged),
        }
    }
}

impl From<Counts> for PartCounts {
    fn from(Counts { requests, usage, charged, .. }: Counts) -> Self {
        let (prompt, cached, completion) = (usage.prompt, usage.cached, usage.completion);
        Self { requests, prompt, cached, completion, charged }
    }
}

impl From<PartCounts> for Sums {
    fn from(PartCounts { requests, prompt, completion, charged, .. }: PartCounts) -> Self {
        Self { requests, tokens: stopped(prompt, completion), charged }
    }
}

/// Counts for those hours of a day in which anything was billed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HoursOfDay(Vec<(u8, PartCounts)>);

impl HoursOfDay {
    /// Returns the counts for these hours; `None` unless the hours are valid and in ascending order.
    pub fn read(hours: Vec<(u8, PartCounts)>) -> Option<Self> {
        let is_sorted = hours.is_sorted_by(|(a, _), (b, _)| a < b);
        (is_sorted && hours.last().is_none_or(|(hour, _)| *hour < HOURS)).then_some(Self(hours))
    }

    pub fn add(&mut self, hour: u8, counts: PartCounts) {
        match self.0.binary_search_by_key(&hour, |(hour, _)| *hour) {
            Ok(place) => self.0[place].1 = self.0[place].1.plus(counts),
            Err(place) => self.0.insert(place, (hour, counts)),
        }
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u8, PartCounts)> {
        self.0.iter().copied()
    }

    pub fn total(&self) -> PartCounts {
        self.iter().fold(PartCounts::default(), |all, (_, counts)| all.plus(counts))
    }

    pub fn of(&self, hour: u8) -> PartCounts {
        let place = self.0.binary_search_by_key(&hour, |(hour, _)| *hour);
        place.map_or(PartCounts::default(), |place| self.0[place].1)
    }
}

/// Counts for a day, in total and by hour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct DayTotal<T> {
    #[n(0)]
    pub of: T,
    #[n(1)]
    pub hours: HoursOfDay,
}

impl DayTotal<Counts> {
    pub fn add(&mut self, hour: u8, counts: Counts) {
        self.of = self.of.plus(counts);
        self.hours.add(hour, counts.into());
    }
}

impl DayTotal<Margin> {
    pub fn add(&mut self, hour: u8, counts: Counts) {
        self.of = self.of.plus(counts.into());
        self.hours.add(hour, counts.into());
    }
}

/// Which keys a group's sum includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(flat)]
pub enum GroupKeys {
    /// Keys in the group, while the group had this parent. A reader who is limited to this parent sees these counts,
    /// but no counts from times when the group had another parent.
    #[n(0)]
    Own(#[n(0)] Option<GroupId>),
    /// Keys in the group's child groups.
    #[n(1)]
    Below,
}

/// A group's counts for a day, ordered by model and keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Serialize)]
#[cbor(transparent)]
pub struct GroupDay(#[n(0)] Vec<GroupPart>);

/// Counts for one model and some of a group's keys on one day.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct GroupPart {
    /// The model's id in the catalogue.
    #[cbor(n(0), with = "shared::stored::shared_text")]
    pub model: Arc<str>,
    #[n(1)]
    pub keys: GroupKeys,
    #[n(2)]
    pub total: DayTotal<Margin>,
}

impl<'b, C> Decode<'b, C> for GroupDay {
    fn decode(decoder: &mut minicbor::Decoder<'b>, context: &mut C) -> Result<Self, minicbor::decode::Error> {
        let parts = Vec::decode(decoder, context)?;
        Self::read(parts).ok_or_else(|| minicbor::decode::Error::message("parts out of order"))
    }
}

impl GroupDay {
    /// Returns a group's counts made of these parts; `None` unless the parts are in ascending order.
    pub fn read(parts: Vec<GroupPart>) -> Option<Self> {
        parts.is_sorted_by(|a, b| (&a.model, a.keys) < (&b.model, b.keys)).then_some(Self(parts))
    }

    /// Adds a bill of a key.
    pub fn add(&mut self, model: &str, keys: GroupKeys, hour: u8, counts: Counts) {
        let place = self.0.binary_search_by(|of| (&*of.model, of.keys).cmp(&(model, keys)));
        let place = place.unwrap_or_else(|place| {
            self.0.insert(place, GroupPart { model: model.into(), keys, total: DayTotal::default() });
            place
        });
        self.0[place].total.add(hour, counts);
    }

    pub fn parts(&self) -> impl ExactSizeIterator<Item = &GroupPart> {
        self.0.iter()
    }

    /// Lists the parts for keys that are in the group itself, not in a child group.
    pub fn own(&self) -> impl Iterator<Item = &GroupPart> {
        self.parts().filter(|part| part.keys != GroupKeys::Below)
    }
}

/// Lists the groups that count a key's bills, each with the [`GroupKeys`] under which it counts the key.
pub fn counting_groups([group, parent]: GroupChain) -> impl Iterator<Item = (GroupId, GroupKeys)> {
    let of_group = group.map(|group| (group, GroupKeys::Own(parent)));
    of_group.into_iter().chain(parent.map(|parent| (parent, GroupKeys::Below)))
}

/// Counts for some users on a day. The first users of a day are counted by name, in the order of their first bills;
/// later users are counted together. So the counts of a named user are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UserDay {
    named: Vec<(Arc<str>, PartCounts)>,
    others: PartCounts,
}

impl UserDay {
    /// Creates the counts of named users and of all others.
    pub const fn of(named: Vec<(Arc<str>, PartCounts)>, others: PartCounts) -> Self {
        Self { named, others }
    }

    pub fn add(&mut self, user: &str, counts: PartCounts) {
        match self.named.iter().position(|(named, _)| **named == *user) {
            Some(place) => self.named[place].1 = self.named[place].1.plus(counts),
            None if self.named.len() < NAMED_USERS => self.named.push((user.into(), counts)),
            None => self.others = self.others.plus(counts),
        }
    }

    pub fn named(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, PartCounts)> {
        self.named.iter().map(|(user, counts)| (user, *counts))
    }

    /// Returns the counts of users who are not counted by name.
    pub const fn others(&self) -> PartCounts {
        self.others
    }
}

/// Returns the number of the record that counts a user, out of a day's [`USER_PARTS`] records.
pub fn part_of_user(user: &str) -> u8 {
    // FNV-1a gives the same result in every program and version.
    let hash = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    let [_, high, ..] = user.bytes().fold(2_166_136_261, hash).to_le_bytes();
    high % USER_PARTS
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::ledger::histories;

    fn counts(requests: u64) -> PartCounts {
        PartCounts { requests, prompt: 5, cached: 1, completion: 2, charged: NanoUsd::from_nanos(7) }
    }

    #[test]
    fn hours_are_counted_apart_and_in_their_order() {
        let mut hours = HoursOfDay::default();
        for hour in [9, 3, 9, 23] {
            hours.add(hour, counts(1));
        }
        let requests: Vec<_> = hours.iter().map(|(hour, counts)| (hour, counts.requests)).collect();
        assert_eq!(requests, [(3, 1), (9, 2), (23, 1)]);
        assert_eq!((hours.of(9).charged.nanos(), hours.of(4)), (14, PartCounts::default()));
        assert_eq!(HoursOfDay::read(hours.iter().collect()), Some(hours));
        for wrong in [
            vec![(24, counts(1))],
            vec![(3, counts(1)), (3, counts(1))],
            vec![(3, counts(1)), (2, counts(1))],
        ] {
            assert_eq!(HoursOfDay::read(wrong), None);
        }
    }

    #[test]
    fn a_group_counts_its_keys_apart_for_each_parent_it_has_had_and_those_of_child_groups_together() {
        let [group, parent, child] = [1, 2, 3].map(histories::group);
        let mut day = GroupDay::default();
        let chains = [
            [Some(group), None],
            [Some(group), Some(parent)],
            [Some(child), Some(group)],
            [Some(child), None],
        ];
        for (model, chain) in chains.into_iter().flat_map(|chain| ["B", "A"].map(|model| (model, chain))) {
            for (_, keys) in counting_groups(chain).filter(|(counting, _)| *counting == group) {
                day.add(model, keys, 4, Counts { requests: 1, ..Counts::default() });
            }
        }
        let of: Vec<_> = day.parts().map(|part| (&*part.model, part.keys)).collect();
        let keys = [GroupKeys::Own(None), GroupKeys::Own(Some(parent)), GroupKeys::Below];
        assert_eq!(of, ["A", "B"].map(|model| keys.map(|keys| (model, keys))).concat());
        assert!(day.parts().all(|part| part.total.of.sums.requests == 1));
        assert_eq!(day.own().count(), 4);
        let mut parts: Vec<_> = day.parts().cloned().collect();
        assert_eq!(GroupDay::read(parts.clone()), Some(day));
        parts.swap(0, 1);
        assert_eq!(GroupDay::read(parts), None);
    }

    #[test]
    fn the_first_users_of_a_day_are_named_and_nobody_is_left_out() {
        let mut day = UserDay::default();
        for round in 0..2 {
            for n in 0..40 {
                day.add(&format!("user-{n}"), counts(1 + round));
            }
        }
        assert_eq!(day.named().len(), NAMED_USERS);
        assert!(day.named().all(|(_, counts)| counts.requests == 3), "a named user's counts are complete");
        assert_eq!(day.others().requests, 3 * (40 - NAMED_USERS as u64));
    }

    #[test]
    fn users_are_spread_over_all_records() {
        let parts: HashSet<u8> = (0..100).map(|n| part_of_user(&format!("user-{n}"))).collect();
        assert_eq!(parts, (0..USER_PARTS).collect());
        assert_eq!((part_of_user(""), part_of_user("ann")), (part_of_user(""), part_of_user("ann")));
    }
}
