//! The journal, deposits and counters.

pub(crate) mod refused;
pub(crate) mod refused_calls;
mod runs;
pub mod search;
pub(crate) mod upstreams;

use std::ops::RangeInclusive;

use domain::{
    ledger::Record as LedgerRecord,
    payment::PaymentId,
    search::EntrySearch,
    usage::{Day, GroupDay},
};
use key_service_ledger::{
    StoreError,
    journal::read_entry,
    names,
    sums::{AccountDay, OtherSums, PayerDay, SumsReader},
};
use records::{Answer, Order, Question, Space};
use shared::ids::{AccountId, DepositId, GenerationId, GroupId, KeyId};

use crate::{
    data::{Deposit, Found, JournalEntry, JournalPage, Order as ListOrder, UsageLine},
    store::base::{Store, no_answer},
};

/// Maximum number of log values, index entries or records to read at a time: a few hundred kilobytes.
pub(crate) const AT_ONCE: usize = 500;

impl Store {
    /// Reads at most `limit` entries of the account's journal after number `after`, in order. Entries never change: a
    /// correction is a further entry.
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
            // Numbers have no gaps, so this range contains exactly the wanted number of entries.
            let last = next.saturating_add(asked as u64).saturating_sub(1);
            let questions =
                vec![values(0, u64::MAX, Order::Ascending, 1), values(next, last, Order::Ascending, asked)];
            let answers: [Answer; 2] =
                self.read().ask(&space, questions).await?.try_into().map_err(|_| no_answer())?;
            let [Answer::Values(first), Answer::Values(found)] = answers else { return Err(no_answer()) };
            page.gone_until = first.first().map_or(0, |(number, _)| number.saturating_sub(1));
            if next <= page.gone_until {
                next = page.gone_until + 1;
                continue;
            }
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

    /// Reads the account's latest journal entries or, if `before` is set, the latest entries before this number.
    /// Returns at most `limit` entries, newest first.
    pub async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        let (space, mut entries) = (names::space(account), Vec::new());
        let mut last = before.map(|before| before.saturating_sub(1));
        while entries.len() < limit && last != Some(0) {
            // Numbers have no gaps. Without `before`, the log's last entry is read first, and its number shows where to
            // continue.
            let asked = if last.is_some() { AT_ONCE.min(limit - entries.len()) } else { 1 };
            let range = last.map_or(0..=u64::MAX, |last| last.saturating_sub(asked as u64 - 1)..=last);
            let found = self.read().values(&space, names::JOURNAL, range, Order::Descending, asked).await?;
            if found.is_empty() {
                let newest = self.last_number(&space).await?;
                if !entries.is_empty() || last.is_none_or(|last| newest >= last) {
                    break;
                }
                last = Some(newest);
            }
            for (number, value) in found {
                entries.push(journal_entry(number, &value)?);
                last = Some(number.saturating_sub(1));
            }
        }
        Ok(entries)
    }

    /// Returns the number of the last entry; 0 for an empty journal.
    async fn last_number(&self, space: &Space) -> Result<u64, StoreError> {
        let last = self.read().values(space, names::JOURNAL, 0..=u64::MAX, Order::Descending, 1).await?;
        Ok(last.first().map_or(0, |(number, _)| *number))
    }

    /// Finds the latest matching entries or, if `before` is set, the latest matching entries before this number.
    /// Returns at most `limit` entries, newest first. Only a limited number of entries is read, so the page may end
    /// before it is full.
    pub async fn find_entries(
        &self,
        account: AccountId,
        search: EntrySearch,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Found<JournalEntry, u64>, StoreError> {
        search::entries(self, account, &search, before, limit).await
    }

    /// Finds a generation's bill, which is its last entry. There is no index for this, so a limited number of entries
    /// after the generation's creation is read.
    pub async fn entry_of(
        &self,
        account: AccountId,
        generation: GenerationId,
    ) -> Result<Option<JournalEntry>, StoreError> {
        search::entry_of(self, account, generation).await
    }

    /// Finds a payment or a refund.
    pub async fn payment(&self, account: AccountId, id: &PaymentId) -> Result<Option<Deposit>, StoreError> {
        self.deposit(account, id.deposit(account)).await
    }

    /// Finds a deposit, payment or refund.
    pub async fn deposit(&self, account: AccountId, id: DepositId) -> Result<Option<Deposit>, StoreError> {
        match self.read().get::<LedgerRecord>(&names::space(account), names::deposit(id)).await? {
            Some(LedgerRecord::Deposited(deposited)) => Ok(Some(Deposit { id, deposited })),
            None => Ok(None),
            Some(LedgerRecord::None | LedgerRecord::Open(_) | LedgerRecord::Closed(_)) => {
                Err(StoreError::Damaged(format!("deposit {id}")))
            }
        }
    }

    /// Lists at most `limit` of the account's payments and refunds by time. The list begins after `after`, which is a
    /// payment or a refund too.
    pub async fn payments(
        &self,
        account: AccountId,
        after: Option<&Deposit>,
        order: ListOrder,
        limit: usize,
    ) -> Result<Vec<Deposit>, StoreError> {
        let (space, mut payments) = (names::space(account), Vec::new());
        let mut last = after.map(|deposit| names::deposited(deposit.at(), deposit.id));
        let mut asked = AT_ONCE.min(limit);
        while payments.len() < limit {
            let (range, order) = match (order, last.take()) {
                (ListOrder::Ascending, last) => {
                    let from = last.map(|last| [&last[..], &[0]].concat());
                    ((from.unwrap_or_default(), None), Order::Ascending)
                }
                (ListOrder::Descending, last) => ((Vec::new(), last), Order::Descending),
            };
            let entries = self.read().entries(&space, names::DEPOSITED, range, order, asked).await?;
            let ids: Vec<_> = entries.iter().map(|entry| deposit_id(entry)).collect::<Result<_, _>>()?;
            let found = self.deposits_of(&space, &ids).await?.into_iter();
            payments.extend(found.filter(|deposit| deposit.deposited.payment.is_some()));
            last = entries.last().cloned();
            if entries.len() < asked {
                break;
            }
            // Deposits without an id may be in between, so the rest is read in large parts.
            asked = AT_ONCE;
        }
        payments.truncate(limit);
        Ok(payments)
    }

    /// Lists at most `limit` of the latest changes of the account's credit by deposits, payments and refunds, newest
    /// first.
    pub async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError> {
        let (space, mut deposits, mut end) = (names::space(account), Vec::new(), None);
        let mut asked = AT_ONCE.min(limit);
        while deposits.len() < limit {
            let range = (Vec::new(), end.take());
            let entries =
                self.read().entries(&space, names::DEPOSITED, range, Order::Descending, asked).await?;
            let ids: Vec<_> = entries.iter().map(|entry| deposit_id(entry)).collect::<Result<_, _>>()?;
            let found = self.deposits_of(&space, &ids).await?.into_iter();
            deposits.extend(found.filter(|deposit| deposit.deposited.terms().to.changes_credit()));
            end = entries.last().cloned();
            if entries.len() < asked {
                break;
            }
            // Payments of wallets may be in between, so the rest is read in large parts.
            asked = AT_ONCE;
        }
        deposits.truncate(limit);
        Ok(deposits)
    }

    pub(crate) async fn deposits_of(
        &self,
        space: &Space,
        ids: &[DepositId],
    ) -> Result<Vec<Deposit>, StoreError> {
        let names = ids.iter().map(|id| names::deposit(*id)).collect();
        let records = self.read().get_all::<LedgerRecord>(space, names).await?;
        let read = ids.iter().zip(records).map(|(id, record)| match record {
            Some(LedgerRecord::Deposited(deposited)) => Ok(Deposit { id: *id, deposited }),
            Some(LedgerRecord::None | LedgerRecord::Open(_) | LedgerRecord::Closed(_)) | None => {
                Err(StoreError::Damaged(format!("deposit {id}")))
            }
        });
        read.collect()
    }

    /// Reads the counters of these keys, or of all keys, for these days. They are ordered by day, key, model and
    /// groups. If `keys` is set, no other keys' counters are read.
    pub async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        keys: Option<&[KeyId]>,
    ) -> Result<Vec<UsageLine>, StoreError> {
        let reader = self.sums(account);
        let found = match keys {
            Some(keys) => reader.of_keys(days, keys).await?,
            None => reader.of_payers(days).await?,
        };
        let mut lines: Vec<_> = found.into_iter().map(usage_line).collect();
        lines.sort_by(|a, b| (a.day, &a.payer).cmp(&(b.day, &b.payer)));
        Ok(lines)
    }

    /// Reads the counters of all keys for these days; `None` if there are more than `most` counters.
    pub async fn usage_of_few(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        most: usize,
    ) -> Result<Option<Vec<UsageLine>>, StoreError> {
        let found = self.sums(account).of_few_payers(days, most).await?;
        Ok(found.map(|found| found.into_iter().map(usage_line).collect()))
    }

    /// Reads the account's sums on each of these days. The sums of a day are from the same moment.
    pub async fn account_days(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        others: OtherSums<'_>,
    ) -> Result<Vec<AccountDay>, StoreError> {
        self.sums(account).days(days, others).await
    }

    /// Reads the sums of a group on each of these days.
    pub async fn group_days(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        group: GroupId,
    ) -> Result<Vec<(Day, GroupDay)>, StoreError> {
        self.sums(account).of_group(days, group).await
    }

    /// Returns after how many days counters are dropped; `None` if they are kept forever.
    pub fn counters_kept(&self) -> Option<u32> {
        self.kept.usage_days
    }

    pub(super) fn sums(&self, account: AccountId) -> SumsReader<'_> {
        SumsReader::new(&*self.records, account)
    }
}

fn usage_line((day, payer, counts): PayerDay) -> UsageLine {
    UsageLine { day, payer, counts }
}

/// Returns the question for values of the journal.
pub(crate) const fn values(from: u64, to: u64, order: Order, limit: usize) -> Question {
    Question::Values { log: names::JOURNAL, from, to, order, limit }
}

/// Decodes a journal entry from the log.
pub(crate) fn journal_entry(number: u64, value: &[u8]) -> Result<JournalEntry, StoreError> {
    read_entry(number, value).ok_or_else(|| StoreError::Damaged(format!("entry {number} of the journal")))
}

/// Returns the deposit's id from an entry of [`names::DEPOSITED`].
pub(crate) fn deposit_id(entry: &[u8]) -> Result<DepositId, StoreError> {
    entry.get(8..).and_then(DepositId::from_slice).ok_or_else(|| damaged("the index of deposits"))
}

/// Returns the error for a record that no version of the program writes.
pub(crate) fn damaged(what: &str) -> StoreError {
    StoreError::Damaged(format!("{what} cannot be read"))
}
