//! Reads daily sums for pages, files and audits.

pub mod journal;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
};

use domain::{
    ledger::Payer,
    usage::{Counts, Day, DayTotal, GroupDay, Margin, USER_PARTS, UserDay},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use minicbor::Decode;
use records::{Answer, Cursor, Question, Record, Records, Set, Space};
use shared::ids::{AccountId, GroupId, KeyId};

use crate::{
    error::StoreError,
    names::{self, PayerName, RecordName},
    stored::{Balance, PayersOfKey},
    view::{
        Stored,
        reading::{SpaceReader, no_answer, value},
    },
};

/// Maximum number of days to read at a time: a month.
const DAYS_AT_ONCE: usize = 31;
/// Maximum number of records to read at a time: a few milliseconds of work, during which other readers wait.
const RECORDS_AT_ONCE: usize = 250;
/// Maximum number of sets to read at a time. Each read returns a page of a few hundred records from each set.
const SETS_AT_ONCE: usize = 8;
/// Number of concurrent reads. A database with several readers can serve them in parallel.
const READ_TOGETHER: usize = 4;

/// Reads the sums of an account.
pub struct SumsReader<'a> {
    records: &'a dyn Records,
    space: Space,
}

/// An account's sums for one day, all read at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountDay {
    pub day: Day,
    pub models: BTreeMap<String, DayTotal<Margin>>,
    /// Sums of the requested groups, in the requested order.
    pub groups: Vec<GroupDay>,
    /// Sums of users; empty unless requested.
    pub users: Vec<UserDay>,
}

/// Sums to read in addition to the models' sums.
#[derive(Clone, Copy, Debug, Default)]
pub struct OtherSums<'a> {
    pub groups: &'a [GroupId],
    pub users: bool,
}

impl OtherSums<'_> {
    /// Returns the numbers of the users' records to read.
    fn parts_of_users(self) -> std::ops::Range<u8> {
        if self.users { 0..USER_PARTS } else { 0..0 }
    }
}

/// A payer's sums for one day.
pub type PayerDay = (Day, Payer, DayTotal<Counts>);

impl<'a> SumsReader<'a> {
    pub fn new(records: &'a dyn Records, account: AccountId) -> Self {
        Self { records, space: names::space(account) }
    }

    /// Reads the sums of these days, in their order.
    pub async fn days(
        &self,
        days: RangeInclusive<Day>,
        others: OtherSums<'_>,
    ) -> Result<Vec<AccountDay>, StoreError> {
        let (days, of_day) = (days_of(&days), 1 + others.groups.len() + others.parts_of_users().len());
        let at_once = (RECORDS_AT_ONCE / of_day).clamp(1, DAYS_AT_ONCE);
        let read: Vec<_> = days.chunks(at_once).map(|some| self.some_days(some, others)).collect();
        Ok(stream::iter(read).buffered(READ_TOGETHER).try_collect::<Vec<_>>().await?.concat())
    }

    async fn some_days(&self, days: &[Day], others: OtherSums<'_>) -> Result<Vec<AccountDay>, StoreError> {
        let question = |day: &Day| {
            let of_users = others.parts_of_users().map(|part| names::of_users(*day, part).into());
            let named =
                others.groups.iter().map(|group| names::of_group(*day, *group).into()).chain(of_users);
            let models = Question::Set(Set { table: names::SPEND, part: names::day_part(*day) }, None);
            [models, Question::Records(named.collect())]
        };
        let answers = self.ask(days.iter().flat_map(question).collect()).await?;
        let mut found = Vec::with_capacity(days.len());
        for (day, answers) in days.iter().zip(answers.chunks_exact(2)) {
            let [Answer::Set(models, next), Answer::Records(named)] = answers else {
                return Err(no_answer());
            };
            let (of_groups, of_users) = named.split_at_checked(others.groups.len()).ok_or_else(no_answer)?;
            let mut of_day = AccountDay {
                day: *day,
                models: read_models(models)?,
                groups: of_groups
                    .iter()
                    .map(|record| read_sums(record.as_ref()))
                    .collect::<Result<_, _>>()?,
                users: of_users.iter().map(|record| read_sums(record.as_ref())).collect::<Result<_, _>>()?,
            };
            // There is a second page only if the catalogue has hundreds of models. The second page is read at another
            // moment.
            if let Some(next) = next {
                let set = Set { table: names::SPEND, part: names::day_part(*day) };
                for (name, record) in self.set(set, Some(next.clone())).await? {
                    of_day.models.extend(read_models(&[(name, record)])?);
                }
            }
            found.push(of_day);
        }
        Ok(found)
    }

    /// Reads a group's sums on these days, in their order.
    pub async fn of_group(
        &self,
        days: RangeInclusive<Day>,
        group: GroupId,
    ) -> Result<Vec<(Day, GroupDay)>, StoreError> {
        let days = days_of(&days);
        let groups = self.named(days.iter().map(|day| names::of_group(*day, group)).collect()).await?;
        Ok(days.into_iter().zip(groups).map(|(day, sums)| (day, sums.unwrap_or_default().of)).collect())
    }

    /// Reads the sums of all payers on these days, ordered by day and payer.
    pub async fn of_payers(&self, days: RangeInclusive<Day>) -> Result<Vec<PayerDay>, StoreError> {
        self.of_wanted(days, |_| true).await
    }

    async fn of_wanted(
        &self,
        days: RangeInclusive<Day>,
        is_wanted: impl Fn(KeyId) -> bool + Sync,
    ) -> Result<Vec<PayerDay>, StoreError> {
        let mut sums = BTreeMap::new();
        let add = |day: Day, name: &[u8], record: &Record| {
            let payer = PayerName::read(name).ok_or_else(damaged)?;
            if is_wanted(payer.key) {
                // A page may repeat a record of an earlier page.
                sums.insert((day, payer), read_sums(Some(record))?);
            }
            Ok(())
        };
        self.each(names::SUMS, days, add).await?;
        Ok(sums.into_iter().map(|((day, payer), total)| (day, payer, total)).collect())
    }

    /// Reads the sums of all payers on these days, ordered by day and payer; `None` if there are more than `most`. The
    /// last days are read first. Reading stops early if the days so far have far more sums than their share of `most`.
    pub async fn of_few_payers(
        &self,
        days: RangeInclusive<Day>,
        most: usize,
    ) -> Result<Option<Vec<PayerDay>>, StoreError> {
        let mut left = days_of(&days);
        let (all, mut sums, mut at_once) = (left.len(), BTreeMap::new(), 1);
        let mut pending: Vec<(Day, Option<Cursor>)> = Vec::new();
        loop {
            let room = 1 + most.saturating_sub(sums.len()) / RECORDS_AT_ONCE;
            let more = left.len().saturating_sub(at_once.min(room).saturating_sub(pending.len()));
            pending.extend(left.split_off(more).into_iter().map(|day| (day, None)));
            if pending.is_empty() {
                break;
            }
            let asked = std::mem::take(&mut pending);
            let question = |(day, after): &(Day, Option<Cursor>)| {
                Question::Set(Set { table: names::SUMS, part: names::day_part(*day) }, after.clone())
            };
            let answers = self.ask(asked.iter().map(question).collect()).await?;
            for ((day, _), answer) in asked.into_iter().zip(answers) {
                let Answer::Set(records, next) = answer else { return Err(no_answer()) };
                for (name, record) in &records {
                    let payer = PayerName::read(name).ok_or_else(damaged)?;
                    // A page may repeat a record of an earlier page.
                    sums.insert((day, payer), read_sums(Some(record))?);
                }
                pending.extend(next.map(|next| (day, Some(next))));
            }
            let begun = all - left.len();
            if sums.len() > most || sums.len() * all > 2 * most * begun {
                return Ok(None);
            }
            at_once = (2 * at_once).min(SETS_AT_ONCE);
        }
        Ok(Some(sums.into_iter().map(|((day, payer), total)| (day, payer, total)).collect()))
    }

    /// Reads only the sums of these keys on these days, ordered by day and payer.
    pub async fn of_keys(
        &self,
        days: RangeInclusive<Day>,
        keys: &[KeyId],
    ) -> Result<Vec<PayerDay>, StoreError> {
        let listed = self.payers_of(keys).await?;
        // Before this day, the lists may lack payers, so all sums are read there.
        let whole_from = listed.iter().map(|list| Day::from_number(list.whole_from.into())).max();
        let whole_from = whole_from.map_or(*days.start(), |day| day.max(*days.start()));
        let earlier = *days.start()..=whole_from.plus(-1).min(*days.end());
        let mut sums = self.of_wanted(earlier, |key| keys.contains(&key)).await?;
        let parts = names::day_part(whole_from)..=names::day_part(*days.end());
        let mut wanted = Vec::new();
        for PayersOfKey { payers, .. } in &listed {
            for payer in payers {
                let (first, last) = (payer.first.max(*parts.start()), payer.last.min(*parts.end()));
                wanted.extend((first..=last).map(|day| (Day::from_number(day.into()), &payer.name)));
            }
        }
        // Names of the same day are put together, because one command of the backend reads them.
        wanted.sort_unstable_by(|(a, of_a), (b, of_b)| {
            a.cmp(b).then_with(|| of_a.as_bytes().cmp(of_b.as_bytes()))
        });
        wanted.dedup();
        let found =
            self.named(wanted.iter().map(|(day, name)| names::of_payer(*day, name)).collect()).await?;
        for ((day, name), found) in wanted.into_iter().zip(found) {
            let Some(found) = found else { continue };
            let payer = PayerName::read(name.as_bytes()).ok_or_else(damaged)?;
            sums.push((day, payer, found.of));
        }
        Ok(sums)
    }

    /// Reads the list of payers of each of these keys.
    pub async fn payers_of(&self, keys: &[KeyId]) -> Result<Vec<PayersOfKey>, StoreError> {
        let found = self.named(keys.iter().map(|key| names::payers(*key)).collect()).await?;
        Ok(found.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Calls `each` with every record of these days' sets. Some records may come twice.
    pub async fn each(
        &self,
        table: u8,
        days: RangeInclusive<Day>,
        mut each: impl FnMut(Day, &[u8], &Record) -> Result<(), StoreError> + Send,
    ) -> Result<(), StoreError> {
        let mut days = days_of(&days).into_iter().map(|day| (day, None));
        let mut pending = VecDeque::<(Day, Option<Cursor>)>::new();
        loop {
            pending.extend(days.by_ref().take(DAYS_AT_ONCE.saturating_sub(pending.len())));
            if pending.is_empty() {
                return Ok(());
            }
            let asked = std::mem::take(&mut pending);
            let question = |(day, after): &(Day, Option<Cursor>)| {
                Question::Set(Set { table, part: names::day_part(*day) }, after.clone())
            };
            let answers = self.ask(asked.iter().map(question).collect()).await?;
            for ((day, _), answer) in asked.into_iter().zip(answers) {
                let Answer::Set(records, next) = answer else { return Err(no_answer()) };
                for (name, record) in &records {
                    each(day, name, record)?;
                }
                pending.extend(next.map(|next| (day, Some(next))));
            }
        }
    }

    /// Reads the records of a set after a cursor.
    async fn set(&self, set: Set, mut after: Option<Cursor>) -> Result<Vec<(Vec<u8>, Record)>, StoreError> {
        let mut all = Vec::new();
        while let Some(place) = after {
            let answer = self.ask(vec![Question::Set(set, Some(place))]).await?.pop();
            let Some(Answer::Set(records, next)) = answer else { return Err(no_answer()) };
            all.extend(records);
            after = next;
        }
        Ok(all)
    }

    /// Reads the values of the records with these names; `None` for a record that does not exist.
    async fn named<T: Stored>(&self, names: Vec<RecordName<T>>) -> Result<Vec<Option<T>>, StoreError> {
        let read = |some: &[RecordName<T>]| SpaceReader(self.records).get_all(&self.space, some.to_vec());
        let read: Vec<_> = names.chunks(RECORDS_AT_ONCE).map(read).collect();
        let found: Vec<_> = stream::iter(read).buffered(READ_TOGETHER).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn ask(&self, questions: Vec<Question>) -> Result<Vec<Answer>, StoreError> {
        Ok(self.records.read(&self.space, questions).await?)
    }
}

fn days_of(days: &RangeInclusive<Day>) -> Vec<Day> {
    let (first, last) = (days.start().number().max(0), days.end().number().min(u32::MAX.into()));
    (first..=last).map(Day::from_number).collect()
}

fn read_models(records: &[(Vec<u8>, Record)]) -> Result<BTreeMap<String, DayTotal<Margin>>, StoreError> {
    let read = |(name, record): &(Vec<u8>, Record)| {
        let model = name.strip_prefix(b"m").and_then(|model| String::from_utf8(model.to_vec()).ok());
        let sums: Balance<DayTotal<Margin>> = value(record)?;
        Ok((model.ok_or_else(damaged)?, sums.of))
    };
    records.iter().map(read).collect()
}

fn read_sums<T: Default + for<'b> Decode<'b, ()>>(record: Option<&Record>) -> Result<T, StoreError> {
    Ok(record.map(value::<Balance<T>>).transpose()?.unwrap_or_default().of)
}

fn damaged() -> StoreError {
    StoreError::Damaged("sums cannot be read".into())
}
