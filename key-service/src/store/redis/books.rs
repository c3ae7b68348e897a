//! The books: journal, deposits, counters of usage, and the audit.

use std::{collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;
use redis::cmd;
use shared::ids::{AccountId, DepositId, GroupId, KeyId};

use super::{
    Redis,
    audit::Attempt,
    journal::{ADDITIONS_AT_ONCE, Addition, addition_of},
    records::{self, damaged},
};
use crate::store::{Books, Deposit, JournalEntry, JournalPage, SpendLine, StoreError, UsageLine};
use domain::{
    audit::Audit,
    usage::{Day, Margin, with_groupless},
};

/// Additions to the journal read in a round trip where each addition has few entries.
const MOST_ADDITIONS: usize = 500;
/// Attempts before an audit gives up. Entries are normally read faster than dropped.
const AUDIT_ATTEMPTS: u32 = 10;

#[async_trait]
impl Books for Redis {
    /// Reads a page. An addition with entries on both sides of `after` is found by reading backwards from there.
    async fn journal(&self, account: AccountId, after: u64, limit: usize) -> Result<JournalPage, StoreError> {
        let journal = self.key_space.journal(account);
        let range = async |command: &str, from: &str, to: &str, count: usize| {
            let mut question = cmd(command);
            question.arg(&journal).arg(from).arg(to).arg("COUNT").arg(count);
            self.client.ask::<Vec<Addition>>(&question).await
        };
        let before = range("XREVRANGE", &after.saturating_add(1).to_string(), "-", 1).await?;
        let mut from = before.first().map_or_else(|| "-".to_owned(), |(id, _)| id.clone());
        let mut entries = Vec::new();
        while entries.len() < limit {
            let additions = range("XRANGE", &from, "+", ADDITIONS_AT_ONCE).await?;
            for addition in &additions {
                let (number, text) = addition_of(addition)?;
                let read = records::read_entries(number, text)?;
                entries.extend(read.into_iter().filter(|entry| entry.number > after));
            }
            match additions.last() {
                Some((id, _)) if additions.len() == ADDITIONS_AT_ONCE => from = format!("({id}"),
                _ => break,
            }
        }
        entries.truncate(limit);
        let first = range("XRANGE", "-", "+", 1).await?;
        let gone_until = match first.first() {
            Some(first) => addition_of(first)?.0.saturating_sub(1),
            None => 0,
        };
        Ok(JournalPage { entries, gone_until })
    }

    /// Reads the latest entries, or the latest before a number; newest first. An addition that holds entries on both
    /// sides of `before` is read as well.
    async fn latest_entries(
        &self,
        account: AccountId,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<JournalEntry>, StoreError> {
        let journal = self.key_space.journal(account);
        let before = before.unwrap_or(u64::MAX);
        let (mut entries, mut from) = (Vec::new(), before.saturating_sub(1).to_string());
        let mut at_once = ADDITIONS_AT_ONCE.min(limit);
        while entries.len() < limit {
            let mut question = cmd("XREVRANGE");
            question.arg(&journal).arg(&from).arg("-").arg("COUNT").arg(at_once);
            let additions: Vec<Addition> = self.client.ask(&question).await?;
            for addition in &additions {
                let (number, text) = addition_of(addition)?;
                let read = records::read_entries(number, text)?;
                entries.extend(read.into_iter().rev().filter(|entry| entry.number < before));
            }
            match additions.last() {
                Some((id, _)) if additions.len() == at_once => from = format!("({id}"),
                _ => break,
            }
            // As many additions as the rest needs, at the size of the additions before.
            let each = (entries.len() / at_once).max(1);
            at_once = (limit.saturating_sub(entries.len()) / each).clamp(1, MOST_ADDITIONS);
        }
        entries.truncate(limit);
        Ok(entries)
    }

    /// Reads all deposits, of which there are few, and answers the latest.
    async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError> {
        let all: Vec<(Vec<u8>, String)> =
            self.client.ask(cmd("HGETALL").arg(self.key_space.deposits(account))).await?;
        let read = all.into_iter().map(|(id, text)| {
            let id = DepositId::from_slice(&id).ok_or_else(|| damaged("a deposit"))?;
            Ok(Deposit { id, deposited: records::read_deposit(&text)? })
        });
        let mut deposits: Vec<Deposit> = read.collect::<Result<_, StoreError>>()?;
        deposits.sort_by_key(|deposit| std::cmp::Reverse((deposit.at(), deposit.id)));
        deposits.truncate(limit);
        Ok(deposits)
    }

    async fn usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        keys: Option<&[KeyId]>,
    ) -> Result<Vec<UsageLine>, StoreError> {
        if let Some(keys) = keys {
            return self.usage_of(account, days, keys).await;
        }
        let mut lines = Vec::new();
        for number in days.start().number()..=days.end().number() {
            let day = Day::from_number(number);
            let counters = self.read_counters(account, day).await?;
            lines.extend(counters.into_iter().map(|(payer, counts)| UsageLine { day, payer, counts }));
        }
        Ok(lines)
    }

    /// Reads the sums of these days. Incomplete days are added up from the counters of all keys instead, and the
    /// sums are kept once the day is over.
    async fn spend(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<Vec<SpendLine>, StoreError> {
        let mut lines = Vec::new();
        for spend in self.added_up(account, days, false).await? {
            let day = spend.day;
            let models =
                if spend.has_sums() { spend.models } else { self.add_up(account, day).await?.models };
            let line = |(model, margin): (_, Margin)| SpendLine { day, model, sums: margin.sums };
            lines.extend(models.into_iter().map(line));
        }
        Ok(lines)
    }

    async fn margins_by_model(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<String, Margin>, StoreError> {
        Ok(self.margins(account, days, false).await?.0)
    }

    async fn margins_by_group(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
    ) -> Result<BTreeMap<Option<GroupId>, Margin>, StoreError> {
        let (models, groups) = self.margins(account, days, true).await?;
        Ok(with_groupless(groups, models.into_values()))
    }

    fn counters_kept(&self) -> Option<u32> {
        Some(self.kept.usage_days)
    }

    async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        for _ in 0..AUDIT_ATTEMPTS {
            match self.go_through(account).await? {
                Attempt::Done(audit) => return Ok(audit),
                Attempt::Overtaken => {}
            }
        }
        Err(StoreError::Busy("the journal drops entries faster than they can be read"))
    }
}
