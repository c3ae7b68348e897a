//! Converts sums of days to messages and back. `None` means that no program writes such a message.

use domain::usage::{
    Counts, Day, DayTotal, GroupDay, GroupKeys, GroupPart, HoursOfDay, Margin, PartCounts, Sums, UserDay,
};
use shared::ids::GroupId;

use crate::{
    codec::amounts::{Balance, nanos, read_usage, usd, write_usage},
    messages,
    names::{PayerName, day_part},
};

/// Most payers that a key's list has. A key has several if it uses several models or moves between groups.
const MOST_LISTED: usize = 200;

/// The payers of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PayersOfKey {
    pub payers: Vec<PayerSpan>,
    /// From this day on, all payers are listed. A number as in the names of sets.
    pub whole_from: u32,
}

/// A payer, with the parts of the first and of the last day on which it has sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayerSpan {
    pub name: PayerName,
    pub first: u32,
    pub last: u32,
}

impl PayersOfKey {
    /// Adds a payer's sums of a day to the list. Drops payers without sums since the day `kept`, and the oldest payers
    /// if there are too many.
    pub(crate) fn list(&mut self, name: &PayerName, day: Day, kept: Option<Day>) {
        let day = day_part(day);
        self.payers.retain(|payer| kept.is_none_or(|kept| payer.last >= day_part(kept)));
        match self.payers.iter_mut().find(|payer| payer.name == *name) {
            Some(payer) => (payer.first, payer.last) = (payer.first.min(day), payer.last.max(day)),
            None => self.payers.push(PayerSpan { name: name.clone(), first: day, last: day }),
        }
        if self.payers.len() > MOST_LISTED
            && let Some((place, oldest)) = self.payers.iter().enumerate().min_by_key(|(_, payer)| payer.last)
        {
            self.whole_from = self.whole_from.max(oldest.last + 1);
            self.payers.swap_remove(place);
        }
    }

    /// Returns whether the list names this payer's sums of the day.
    pub fn finds(&self, name: &[u8], day: Day) -> bool {
        let day = day_part(day);
        let is_it =
            |payer: &PayerSpan| payer.name.as_bytes() == name && (payer.first..=payer.last).contains(&day);
        day < self.whole_from || self.payers.iter().any(is_it)
    }
}

pub(crate) fn write_payers(PayersOfKey { payers, whole_from }: &PayersOfKey) -> messages::KeyPayers {
    let listed = |payer: &PayerSpan| messages::ListedPayer {
        name: payer.name.to_vec(),
        first: payer.first,
        last: payer.last,
    };
    messages::KeyPayers { payers: payers.iter().map(listed).collect(), whole_from: *whole_from }
}

/// Reads the payers of a key.
pub fn read_payers(messages::KeyPayers { payers, whole_from }: messages::KeyPayers) -> Option<PayersOfKey> {
    let listed = |messages::ListedPayer { name, first, last }| {
        PayerName::read(&name)?;
        Some(PayerSpan { name: PayerName::from_bytes(&name), first, last })
    };
    Some(PayersOfKey { payers: payers.into_iter().map(listed).collect::<Option<_>>()?, whole_from })
}

pub(crate) fn write_counts(
    Balance { of: DayTotal { of: counts, hours }, last_entry }: &Balance<DayTotal<Counts>>,
) -> messages::Sums {
    let Counts { requests, usage, charged, upstream_cost, charged_at_known_cost } = counts;
    messages::Sums {
        requests: *requests,
        usage: Some(write_usage(usage)),
        tokens: 0,
        charged: nanos(*charged),
        upstream_cost: nanos(*upstream_cost),
        charged_at_known_cost: nanos(*charged_at_known_cost),
        last_entry: *last_entry,
        hours: write_hours(hours),
    }
}

/// Reads the sums of a payer.
pub fn read_counts(sums: messages::Sums) -> Option<Balance<DayTotal<Counts>>> {
    let last_entry = sums.last_entry;
    let counts = Counts {
        requests: sums.requests,
        usage: read_usage(&sums.usage.unwrap_or_default()),
        charged: usd(sums.charged),
        upstream_cost: usd(sums.upstream_cost),
        charged_at_known_cost: usd(sums.charged_at_known_cost),
    };
    Some(Balance { of: DayTotal { of: counts, hours: read_hours(sums.hours)? }, last_entry })
}

pub(crate) fn write_margin(Balance { of: total, last_entry }: &Balance<DayTotal<Margin>>) -> messages::Sums {
    messages::Sums { last_entry: *last_entry, ..write_total(total) }
}

fn write_total(DayTotal { of: margin, hours }: &DayTotal<Margin>) -> messages::Sums {
    let Margin { sums: Sums { requests, tokens, charged }, upstream_cost, charged_at_known_cost } = margin;
    messages::Sums {
        requests: *requests,
        usage: None,
        tokens: *tokens,
        charged: nanos(*charged),
        upstream_cost: nanos(*upstream_cost),
        charged_at_known_cost: nanos(*charged_at_known_cost),
        last_entry: 0,
        hours: write_hours(hours),
    }
}

/// Reads the sums of a model.
pub fn read_margin(sums: messages::Sums) -> Option<Balance<DayTotal<Margin>>> {
    let last_entry = sums.last_entry;
    Some(Balance { of: read_total(sums)?, last_entry })
}

fn read_total(sums: messages::Sums) -> Option<DayTotal<Margin>> {
    let of = Margin {
        sums: Sums { requests: sums.requests, tokens: sums.tokens, charged: usd(sums.charged) },
        upstream_cost: usd(sums.upstream_cost),
        charged_at_known_cost: usd(sums.charged_at_known_cost),
    };
    Some(DayTotal { of, hours: read_hours(sums.hours)? })
}

pub(crate) fn write_group_day(Balance { of, last_entry }: &Balance<GroupDay>) -> messages::GroupSums {
    let part = |GroupPart { model, keys, total }: &GroupPart| messages::GroupPartSums {
        model: model.to_string(),
        below: *keys == GroupKeys::Below,
        parent: match keys {
            GroupKeys::Own(Some(parent)) => parent.as_bytes().to_vec(),
            GroupKeys::Own(None) | GroupKeys::Below => Vec::new(),
        },
        sums: Some(write_total(total)),
    };
    messages::GroupSums { parts: of.parts().map(part).collect(), last_entry: *last_entry }
}

/// Reads the sums of a group.
pub fn read_group_day(
    messages::GroupSums { parts, last_entry }: messages::GroupSums,
) -> Option<Balance<GroupDay>> {
    let part = |messages::GroupPartSums { model, below, parent, sums }| {
        let keys = match (below, parent.is_empty()) {
            (true, true) => GroupKeys::Below,
            (true, false) => return None,
            (false, true) => GroupKeys::Own(None),
            (false, false) => GroupKeys::Own(Some(GroupId::from_slice(&parent)?)),
        };
        Some(GroupPart { model: model.into(), keys, total: read_total(sums?)? })
    };
    let parts = parts.into_iter().map(part).collect::<Option<_>>()?;
    Some(Balance { of: GroupDay::read(parts)?, last_entry })
}

pub(crate) fn write_user_day(Balance { of, last_entry }: &Balance<UserDay>) -> messages::UserSums {
    let counts = of.named().map(|(_, counts)| counts).chain([of.others()]);
    messages::UserSums {
        users: of.named().map(|(user, _)| user.to_string()).collect(),
        counts: Some(write_parts(counts)),
        last_entry: *last_entry,
    }
}

/// Reads the sums of users.
pub fn read_user_day(
    messages::UserSums { users, counts, last_entry }: messages::UserSums,
) -> Option<Balance<UserDay>> {
    let mut counts = read_parts(counts.unwrap_or_default(), users.len() + 1)?;
    let others = counts.pop()?;
    let named = users.into_iter().map(Into::into).zip(counts).collect();
    Some(Balance { of: UserDay::of(named, others), last_entry })
}

fn write_hours(hours: &HoursOfDay) -> Option<messages::HourColumns> {
    (hours.iter().len() > 0).then(|| messages::HourColumns {
        hours: hours.iter().map(|(hour, _)| hour.into()).collect(),
        counts: Some(write_parts(hours.iter().map(|(_, counts)| counts))),
    })
}

fn read_hours(hours: Option<messages::HourColumns>) -> Option<HoursOfDay> {
    let messages::HourColumns { hours, counts } = hours.unwrap_or_default();
    let counts = read_parts(counts.unwrap_or_default(), hours.len())?;
    let hour = |(hour, counts): (u32, PartCounts)| Some((u8::try_from(hour).ok()?, counts));
    HoursOfDay::read(hours.into_iter().zip(counts).map(hour).collect::<Option<_>>()?)
}

fn write_parts(parts: impl Iterator<Item = PartCounts>) -> messages::CountColumns {
    let (most, _) = parts.size_hint();
    let mut columns = messages::CountColumns {
        requests: Vec::with_capacity(most),
        prompt: Vec::with_capacity(most),
        cached: Vec::with_capacity(most),
        completion: Vec::with_capacity(most),
        charged: Vec::with_capacity(most),
    };
    for PartCounts { requests, prompt, cached, completion, charged } in parts {
        columns.requests.push(requests);
        columns.prompt.push(prompt);
        columns.cached.push(cached);
        columns.completion.push(completion);
        columns.charged.push(nanos(charged));
    }
    columns
}

/// Reads the counts of this many parts; `None` unless every column has that many values.
fn read_parts(columns: messages::CountColumns, parts: usize) -> Option<Vec<PartCounts>> {
    let messages::CountColumns { requests, prompt, cached, completion, charged } = columns;
    let lengths = [requests.len(), prompt.len(), cached.len(), completion.len(), charged.len()];
    let part = |at: usize| PartCounts {
        requests: requests[at],
        prompt: prompt[at],
        cached: cached[at],
        completion: completion[at],
        charged: usd(charged[at]),
    };
    lengths.iter().all(|length| *length == parts).then(|| (0..parts).map(part).collect())
}
