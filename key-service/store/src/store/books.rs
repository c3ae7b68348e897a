//! The journal, deposits and counters.

pub(crate) mod refused;
pub(crate) mod refused_calls;
pub mod search;
pub(crate) mod upstreams;

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    ops::RangeInclusive,
};

use domain::{
    ledger::{Entry, Record as LedgerRecord},
    search::EntrySearch,
    usage::{Day, Margin, Sums, with_groupless},
};
use key_service_ledger::{StoreError, codec, messages, names};
use prost::Message;
use records::{Answer, Cursor, Name, Order, Question, Record, Set, Space};
use shared::ids::{AccountId, DepositId, GenerationId, GroupId, KeyId};

use crate::{
    data::{Deposit, Found, JournalEntry, JournalPage, SpendLine, UsageLine},
    store::base::{Store, message, no_answer},
};

/// Values of a log, entries of an index or records requested at a time: some hundred kilobytes.
pub(crate) const AT_ONCE: usize = 500;
/// Sets read at a time: a month of days.
const SETS_AT_ONCE: usize = 31;

impl Store {
    /// Reads entries of the account's journal after number `after`, in the order of their numbers, at most `limit`.
    /// Entries are only appended; a correction has its own number.
    pub async fn journal(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> Result<JournalPage, StoreError> {
        let space = names::space(account);
        let mut page = JournalPage { entries: Vec::new(), gone_until: 0 };
        let mut next = after.saturating_add(1);
        loop {
            let asked = AT_ONCE.min(limit - page.entries.len());
            let questions = vec![
                values(0, u64::MAX, Order::Ascending, 1),
                values(next, u64::MAX, Order::Ascending, asked),
            ];
            let answers: [Answer; 2] =
                self.ask(&space, questions).await?.try_into().map_err(|_| no_answer())?;
            let [Answer::Values(first), Answer::Values(found)] = answers else { return Err(no_answer()) };
            page.gone_until = first.first().map_or(0, |(number, _)| number.saturating_sub(1));
            let was_last = found.len() < asked;
            for (number, value) in found {
                page.entries.push(journal_entry(number, &value)?);
                next = number.saturating_add(1);
            }
            if was_last || page.entries.len() >= limit {
                return Ok(page);
            }
        }
    }

    /// Reads the latest entries of the account's journal, or those before number `before`, the newest first, at most
    /// `limit`.
    pub async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        let (space, mut entries) = (names::space(account), Vec::new());
        let mut last = before.map_or(u64::MAX, |before| before.saturating_sub(1));
        while last > 0 && entries.len() < limit {
            let asked = AT_ONCE.min(limit - entries.len());
            let found = self.values(&space, names::JOURNAL, (0, last), (Order::Descending, asked)).await?;
            let was_last = found.len() < asked;
            for (number, value) in found {
                entries.push(journal_entry(number, &value)?);
                last = number.saturating_sub(1);
            }
            if was_last {
                break;
            }
        }
        Ok(entries)
    }

    /// Finds the latest matching entries, or those before number `before`, the newest first, at most `limit`. Without
    /// an index, it reads a bounded number of entries, and the page may end before it is full.
    pub async fn find_entries(
        &self,
        account: AccountId,
        search: EntrySearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<JournalEntry, u64>, StoreError> {
        search::entries(self, account, &search, before, limit).await
    }

    /// Finds the last entry of a generation, which is its bill. Without an index, it reads a bounded number of entries
    /// after the generation's creation.
    pub async fn entry_of(
        &self,
        account: AccountId,
        generation: GenerationId,
    ) -> Result<Option<JournalEntry>, StoreError> {
        search::entry_of(self, account, generation).await
    }

    /// Lists the account's latest deposits, the newest first, at most `limit`.
    pub async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError> {
        let (space, mut deposits, mut end) = (names::space(account), Vec::new(), None);
        while deposits.len() < limit {
            let asked = AT_ONCE.min(limit - deposits.len());
            let order = (Order::Descending, asked);
            let entries = self.entries(&space, names::DEPOSITED, (Vec::new(), end.take()), order).await?;
            let ids: Vec<_> = entries.iter().map(|entry| deposit_id(entry)).collect::<Result<_, _>>()?;
            deposits.extend(self.deposits_of(&space, &ids).await?);
            end = entries.last().cloned();
            if entries.len() < asked {
                break;
            }
        }
        Ok(deposits)
    }

    pub(crate) async fn deposits_of(
        &self,
        space: &Space,
        ids: &[DepositId],
    ) -> Result<Vec<Deposit>, StoreError> {
        let names = ids.iter().map(|id| names::deposit(*id)).collect();
        let records = self.get_all::<messages::Deposit>(space, names).await?;
        let read = ids.iter().zip(records).map(|(id, record)| match record.and_then(codec::read_deposit) {
            Some(LedgerRecord::Deposited(deposited)) => Ok(Deposit { id: *id, deposited }),
            Some(LedgerRecord::None | LedgerRecord::Open(_) | LedgerRecord::Closed(_)) | None => {
                Err(StoreError::Damaged(format!("deposit {id}")))
            }
        });
        read.collect()
    }

    /// Reads counters of these days, of some keys or of all, in the order of days, keys, models and groups.
    pub async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        keys: Option<&[KeyId]>,
    ) -> Result<Vec<UsageLine>, StoreError> {
        if keys.is_some_and(<[KeyId]>::is_empty) {
            return Ok(Vec::new());
        }
        let keys: Option<HashSet<_>> = keys.map(|keys| keys.iter().copied().collect());
        let mut lines = BTreeMap::new();
        let is_wanted = |payer: &[u8]| {
            let key = payer.get(1..17).and_then(KeyId::from_slice);
            keys.as_ref().is_none_or(|keys| key.is_none_or(|key| keys.contains(&key)))
        };
        let add = |day: Day, name: &[u8], record: &Record| {
            if is_wanted(name) {
                let payer = names::PayerName::read(name).ok_or_else(|| damaged("counters"))?;
                // A page may repeat a record of an earlier one.
                lines.insert((day, payer), codec::read_counts(message(record)?).of);
            }
            Ok(())
        };
        self.each_of_days(account, names::SUMS, days, add).await?;
        Ok(lines.into_iter().map(|((day, payer), counts)| UsageLine { day, payer, counts }).collect())
    }

    /// Reads sums of the account on these days by model, in the order of days and models.
    pub async fn spend(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<SpendLine>, StoreError> {
        let mut lines = BTreeMap::new();
        let add = |day: Day, name: &[u8], record: &Record| {
            if let SpendOf::Model(model) = spend_of(name)? {
                lines.insert((day, model), codec::read_margin(&message(record)?).of.sums);
            }
            Ok(())
        };
        self.each_of_days(account, names::SPEND, days, add).await?;
        Ok(lines.into_iter().map(|((day, model), sums)| SpendLine { day, model, sums }).collect())
    }

    /// Sums up the account over all these days, with the cost to the operator, by model.
    pub async fn margins_by_model(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<String, Margin>, StoreError> {
        let mut models = BTreeMap::<String, Margin>::new();
        for (_, of, margin) in self.margins(account, days).await? {
            if let SpendOf::Model(model) = of {
                add_to(&mut models, model, margin);
            }
        }
        Ok(models)
    }

    /// Sums up as [`Self::margins_by_model`] does, by the group that the key was in. `None` stands for keys without a
    /// group.
    pub async fn margins_by_group(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<Option<GroupId>, Margin>, StoreError> {
        let (mut groups, mut all) = (BTreeMap::<GroupId, Margin>::new(), Vec::new());
        for (_, of, margin) in self.margins(account, days).await? {
            match of {
                SpendOf::Group(group) => add_to(&mut groups, group, margin),
                SpendOf::Model(_) => all.push(margin),
            }
        }
        Ok(with_groupless(groups, all))
    }

    /// Sums up each of these days by the group that the key was in. `None` stands for keys without a group.
    pub async fn spend_by_group(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<(Day, Option<GroupId>, Sums)>, StoreError> {
        let mut of_days = BTreeMap::<Day, (BTreeMap<GroupId, Margin>, Vec<Margin>)>::new();
        for (day, of, margin) in self.margins(account, days).await? {
            let (groups, all) = of_days.entry(day).or_default();
            match of {
                SpendOf::Group(group) => add_to(groups, group, margin),
                SpendOf::Model(_) => all.push(margin),
            }
        }
        let of_day = |(day, (groups, all))| {
            let groups = with_groupless(groups, all).into_iter();
            groups.map(move |(group, margin): (Option<GroupId>, Margin)| (day, group, margin.sums))
        };
        Ok(of_days.into_iter().flat_map(of_day).collect())
    }

    /// Returns the days after which the counters of a day are dropped; `None` if they are kept forever.
    pub fn counters_kept(&self) -> Option<u32> {
        self.kept.usage_days
    }

    /// Reads sums of each model and group on each of these days. Those of a day are of one moment, so that models and
    /// groups are sums of the same bills: a day of several pages is read once more by the names on those pages.
    async fn margins(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<(Day, SpendOf, Margin)>, StoreError> {
        let (space, mut sets) = (names::space(account), BTreeMap::<Day, BTreeMap<Vec<u8>, Margin>>::new());
        let add = |day: Day, name: &[u8], record: &Record| {
            let margin = codec::read_margin(&message(record)?).of;
            sets.entry(day).or_default().insert(name.to_vec(), margin);
            Ok(())
        };
        let of_pages = self.each_of_days(account, names::SPEND, days, add).await?;
        for day in of_pages {
            let Some(margins) = sets.get_mut(&day) else { continue };
            let set = Set { table: names::SPEND, part: names::day_part(day) };
            let all: Vec<_> = margins.keys().map(|key| Name { set, key: key[..].into() }).collect();
            let questions = all.chunks(AT_ONCE).map(|names| Question::Records(names.to_vec())).collect();
            let mut records = Vec::with_capacity(all.len());
            for answer in self.ask(&space, questions).await? {
                let Answer::Records(found) = answer else { return Err(no_answer()) };
                records.extend(found);
            }
            for (margin, record) in margins.values_mut().zip(records) {
                let margin_now = record.as_ref().map(message).transpose()?;
                *margin = margin_now.map_or(Margin::default(), |sums| codec::read_margin(&sums).of);
            }
        }
        let of_day = |(day, sums): (Day, BTreeMap<Vec<u8>, Margin>)| {
            sums.into_iter().map(move |(name, margin)| Ok((day, spend_of(&name)?, margin)))
        };
        sets.into_iter().flat_map(of_day).collect()
    }

    /// Passes on every record of the sets of these days. Returns the days whose sets had several pages.
    pub(crate) async fn each_of_days(
        &self,
        account: AccountId,
        table: u8,
        days: RangeInclusive<Day>,
        mut each: impl FnMut(Day, &[u8], &Record) -> Result<(), StoreError> + Send,
    ) -> Result<Vec<Day>, StoreError> {
        let space = names::space(account);
        let (first, last) = (days.start().number().max(0), days.end().number().min(u32::MAX.into()));
        let mut days = (first..=last).map(|number| (Day::from_number(number), None));
        let (mut pending, mut of_pages) = (VecDeque::<(Day, Option<Cursor>)>::new(), Vec::new());
        loop {
            pending.extend(days.by_ref().take(SETS_AT_ONCE.saturating_sub(pending.len())));
            if pending.is_empty() {
                return Ok(of_pages);
            }
            let asked = std::mem::take(&mut pending);
            let question = |(day, after): &(Day, Option<Cursor>)| {
                Question::Set(Set { table, part: names::day_part(*day) }, after.clone())
            };
            let answers = self.ask(&space, asked.iter().map(question).collect()).await?;
            for ((day, after), answer) in asked.into_iter().zip(answers) {
                let Answer::Set(records, next) = answer else { return Err(no_answer()) };
                for (name, record) in &records {
                    each(day, name, record)?;
                }
                if let Some(next) = next {
                    if after.is_none() {
                        of_pages.push(day);
                    }
                    pending.push_back((day, Some(next)));
                }
            }
        }
    }
}

/// What the sum in a record of [`names::SPEND`] belongs to.
enum SpendOf {
    Model(String),
    Group(GroupId),
}

fn spend_of(name: &[u8]) -> Result<SpendOf, StoreError> {
    let of = match name.split_first() {
        Some((b'm', model)) => String::from_utf8(model.to_vec()).ok().map(SpendOf::Model),
        Some((b'g', group)) => GroupId::from_slice(group).map(SpendOf::Group),
        Some(_) | None => None,
    };
    of.ok_or_else(|| damaged("sums"))
}

fn add_to<K: Ord>(sums: &mut BTreeMap<K, Margin>, of: K, margin: Margin) {
    let sum = sums.entry(of).or_default();
    *sum = sum.plus(margin);
}

/// A question about values of the journal.
pub(crate) const fn values(from: u64, to: u64, order: Order, limit: usize) -> Question {
    Question::Values { log: names::JOURNAL, from, to, order, limit }
}

/// An entry of the journal as the log keeps it.
pub(crate) fn journal_entry(number: u64, value: &[u8]) -> Result<JournalEntry, StoreError> {
    let read = || {
        let messages::Entry { generation, bill, delta, used_after } = messages::Entry::decode(value).ok()?;
        let LedgerRecord::Closed(settlement) = codec::read_generation(bill?)? else { return None };
        let entry = Entry { settlement, delta: codec::usd(delta), used_after: codec::usd(used_after) };
        Some(JournalEntry { number, generation: GenerationId::from_slice(&generation)?, entry })
    };
    read().ok_or_else(|| StoreError::Damaged(format!("entry {number} of the journal")))
}

/// The id in an entry of [`names::DEPOSITED`].
pub(crate) fn deposit_id(entry: &[u8]) -> Result<DepositId, StoreError> {
    entry.get(8..).and_then(DepositId::from_slice).ok_or_else(|| damaged("the index of deposits"))
}

/// Error of a record that no program writes.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} cannot be read"))
}
