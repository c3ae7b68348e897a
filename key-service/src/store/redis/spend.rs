//! Sums by day and model, and by day and group, which the ledger adds up.

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeInclusive,
};

use redis::{Value, from_redis_value, pipe};
use shared::{
    ids::{AccountId, GroupId},
    money::NanoUsd,
};

use super::{
    Redis,
    records::{Reader, damaged, double},
};
use crate::store::StoreError;
use domain::{
    ledger::Payer,
    usage::{COUNTED, Day, Margin, Sums},
};

/// The field of a day's spend that marks the sums of a whole day, and the marks: of charges by model, of requests and
/// tokens too, of everything. A day begun by an earlier version has an earlier mark, or none.
const WHOLE: &str = "";
const CHARGES: i64 = 1;
const SUMS: i64 = 2;
const EVERYTHING: i64 = 3;
/// Ends of the fields of requests, tokens, costs to the operator, and charges whose cost is known, behind the model.
const REQUESTS: &str = "\0r";
const TOKENS: &str = "\0t";
const COST: &str = "\0c";
const AT_KNOWN_COST: &str = "\0k";

/// Sums of a day.
pub(super) struct DaySpend {
    pub(super) day: Day,
    pub(super) models: BTreeMap<String, Margin>,
    groups: Vec<(GroupId, Margin)>,
    /// Mark of the sums that are there.
    mark: i64,
}

impl DaySpend {
    /// Returns whether the day has every model.
    pub(super) fn has_every_model(&self) -> bool {
        self.mark >= CHARGES
    }

    /// Returns whether the day has requests, tokens and charges of every model.
    pub(super) fn has_sums(&self) -> bool {
        self.mark >= SUMS
    }
}

/// Sums by model and by group.
pub(super) type Margins = (BTreeMap<String, Margin>, BTreeMap<GroupId, Margin>);

impl Redis {
    /// Spend as added up by the ledger's script; where the groups' is asked for too, all as of one moment.
    pub(super) async fn added_up(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        with_groups: bool,
    ) -> Result<Vec<DaySpend>, StoreError> {
        let days: Vec<Day> = (days.start().number()..=days.end().number()).map(Day::from_number).collect();
        let mut read = pipe();
        if with_groups {
            read.atomic();
        }
        for day in &days {
            read.cmd("HGETALL").arg(self.key_space.spend(account, *day));
            read.cmd("EXISTS").arg(self.key_space.counters(account, *day));
            if with_groups {
                read.cmd("HGETALL").arg(self.key_space.group_spend(account, *day));
            }
        }
        let mut found = self.client.ask_all::<Vec<Value>>(&read).await?.into_iter();
        let mut next = || found.next().ok_or_else(|| damaged("spend"));
        let mut spend = Vec::with_capacity(days.len());
        for day in days {
            let mut fields: BTreeMap<String, i64> = from_redis_value(next()?)?;
            let has_counters: bool = from_redis_value(next()?)?;
            let groups = if with_groups { read_groups(from_redis_value(next()?)?)? } else { Vec::new() };
            let mark = fields.remove(WHOLE).unwrap_or(if has_counters { 0 } else { EVERYTHING });
            spend.push(DaySpend { day, models: read_models(fields), groups, mark });
        }
        Ok(spend)
    }

    /// The sums of these days together, by model, and by group where asked for.
    pub(super) async fn margins(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        with_groups: bool,
    ) -> Result<Margins, StoreError> {
        let (mut models, mut groups) = Margins::default();
        for mut spend in self.added_up(account, days, with_groups).await? {
            if spend.mark < EVERYTHING {
                spend = self.add_up(account, spend.day).await?;
            }
            for (model, margin) in spend.models {
                add(models.entry(model).or_default(), margin);
            }
            for (group, margin) in spend.groups {
                add(groups.entry(group).or_default(), margin);
            }
        }
        Ok((models, groups))
    }

    /// Adds up the counters of all keys, and keeps the sums of a day that is over.
    pub(super) async fn add_up(&self, account: AccountId, day: Day) -> Result<DaySpend, StoreError> {
        let (mut models, mut groups) = (BTreeMap::new(), HashMap::new());
        for (payer, counts) in self.read_counters(account, day).await? {
            let Payer { model, groups: [group, _], .. } = payer;
            add(models.entry(model).or_default(), counts.into());
            if let Some(group) = group {
                add(groups.entry(group).or_default(), counts.into());
            }
        }
        let spend = DaySpend { day, models, groups: groups.into_iter().collect(), mark: EVERYTHING };
        if day <= Day::closed(self.clock.now()) {
            self.keep_sums(account, &spend).await?;
        }
        Ok(spend)
    }

    /// Writes the sums of a day, for as long as the counters of the day are kept.
    async fn keep_sums(&self, account: AccountId, spend: &DaySpend) -> Result<(), StoreError> {
        let DaySpend { day, models, groups, mark } = spend;
        let [of_models, of_groups] =
            [self.key_space.spend(account, *day), self.key_space.group_spend(account, *day)];
        let counters = self.key_space.counters(account, *day);
        let left: i64 = self.client.ask(redis::cmd("TTL").arg(counters)).await?;
        let mut keep = pipe();
        keep.atomic();
        keep.cmd("HSET").arg(&of_models).arg(WHOLE).arg(*mark).arg(write_models(models)).ignore();
        if !groups.is_empty() {
            let fields =
                groups.iter().map(|(group, margin)| (group.as_bytes().as_slice(), write_margin(margin)));
            keep.cmd("HSET").arg(&of_groups).arg(fields.collect::<Vec<_>>()).ignore();
        }
        for name in [of_models, of_groups].iter().filter(|_| left > 0) {
            keep.cmd("EXPIRE").arg(name).arg(left).ignore();
        }
        Ok(self.client.ask_all::<()>(&keep).await?)
    }
}

fn add(sum: &mut Margin, more: Margin) {
    *sum = sum.plus(more);
}

/// Reads the fields of a day's sums by model.
fn read_models(fields: BTreeMap<String, i64>) -> BTreeMap<String, Margin> {
    let mut models: BTreeMap<String, Margin> = BTreeMap::new();
    for (field, sum) in fields {
        let (model, part) = field.split_at(field.find('\0').unwrap_or(field.len()));
        let (margin, money) = (models.entry(model.to_owned()).or_default(), NanoUsd::from_nanos(sum));
        let count = u64::try_from(sum).unwrap_or_default().min(COUNTED);
        match part {
            REQUESTS => margin.sums.requests = count,
            TOKENS => margin.sums.tokens = count,
            COST => margin.upstream_cost = money,
            AT_KNOWN_COST => margin.charged_at_known_cost = money,
            _ => margin.sums.charged = money,
        }
    }
    models
}

/// The fields of a day's sums by model.
fn write_models(models: &BTreeMap<String, Margin>) -> Vec<(String, i64)> {
    let fields = |(model, margin): (&String, &Margin)| {
        let Margin { sums: Sums { requests, tokens, charged }, upstream_cost, charged_at_known_cost } =
            margin;
        [
            ("", charged.nanos()),
            (REQUESTS, requests.cast_signed()),
            (TOKENS, tokens.cast_signed()),
            (COST, upstream_cost.nanos()),
            (AT_KNOWN_COST, charged_at_known_cost.nanos()),
        ]
        .map(|(part, sum)| (format!("{model}{part}"), sum))
    };
    models.iter().flat_map(fields).collect()
}

/// Reads a day's sums by group, as `scripts/ledger/margins.lua` writes them.
fn read_groups(fields: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Vec<(GroupId, Margin)>, StoreError> {
    let read = |(group, record): (Vec<u8>, Vec<u8>)| {
        let mut reader = Reader(&record);
        let (requests, tokens, charged) = (reader.count()?, reader.count()?, reader.money()?);
        let (upstream_cost, charged_at_known_cost) = (reader.money()?, reader.money()?);
        let sums = Sums { requests, tokens, charged };
        Some((GroupId::from_slice(&group)?, Margin { sums, upstream_cost, charged_at_known_cost }))
    };
    fields.into_iter().map(|field| read(field).ok_or_else(|| damaged("the spend of a group"))).collect()
}

/// Writes the sums of a group.
fn write_margin(Margin { sums, upstream_cost, charged_at_known_cost }: &Margin) -> Vec<u8> {
    let Sums { requests, tokens, charged } = sums;
    let [requests, tokens] = [requests, tokens].map(|count| count.cast_signed());
    let money = [charged, upstream_cost, charged_at_known_cost].map(|amount| amount.nanos());
    [requests, tokens].into_iter().chain(money).flat_map(double).collect()
}
