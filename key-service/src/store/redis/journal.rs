//! The journal and the counters of usage, as they are read.

use std::{collections::BTreeMap, ops::RangeInclusive};

use redis::{RedisResult, cmd};
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
    tokens::Usage,
};

use super::{Redis, fields::damaged, fold, script::Arguments};
use crate::{
    domain::usage::{Counts, Day},
    store::{JournalEntry, JournalPage, UsageLine},
};

/// Entries read in one run of the script, which takes some 2 µs each.
const ENTRIES_AT_ONCE: usize = 500;
/// Counters read in one round trip.
const COUNTERS_AT_ONCE: usize = 1000;

impl Redis {
    pub(super) async fn read_journal(
        &self,
        account: AccountId,
        after: u64,
        limit: usize,
    ) -> RedisResult<JournalPage> {
        let mut page = JournalPage { entries: Vec::new(), gone_until: 0 };
        let mut last = after;
        while page.entries.len() < limit {
            let wanted = (limit - page.entries.len()).min(ENTRIES_AT_ONCE);
            let names = &self.names;
            let names = [names.records(account), names.journal(account), names.archive(account)];
            let arguments = Arguments::keys(names).with(last.to_string()).with(wanted.to_string());
            let answer: Vec<String> = self.link.run(&self.scripts.read_journal, &arguments).await?;
            let (gone_until, entries) = answer.split_first().ok_or_else(|| damaged("a journal"))?;
            page.gone_until = gone_until.parse().map_err(|_| damaged("an archive"))?;
            for entry in entries.chunks_exact(3) {
                last = entry[0].parse().map_err(|_| damaged("the number of an entry"))?;
                // One whose record is lost is for the audit to find.
                if !entry[2].is_empty() {
                    page.entries
                        .push(parse_entry(last, &entry[1], &entry[2]).ok_or_else(|| damaged("an entry"))?);
                }
            }
            if entries.len() < 3 * wanted {
                break;
            }
        }
        Ok(page)
    }

    pub(super) async fn read_usage(
        &self,
        account: AccountId,
        days: RangeInclusive<Day>,
        only: Option<KeyId>,
    ) -> RedisResult<Vec<UsageLine>> {
        let mut lines = Vec::new();
        for number in days.start().number()..=days.end().number() {
            let day = Day::from_number(number);
            for ((key, model), counts) in self.read_counters(account, day, only).await? {
                lines.push(UsageLine { day, key, model, counts });
            }
        }
        Ok(lines)
    }

    /// A counter may come twice while others are added; its later reading is the truer one.
    async fn read_counters(
        &self,
        account: AccountId,
        day: Day,
        only: Option<KeyId>,
    ) -> RedisResult<BTreeMap<(KeyId, String), Counts>> {
        let (mut counters, mut cursor) = (BTreeMap::new(), "0".to_owned());
        loop {
            let mut scan = cmd("HSCAN");
            scan.arg(self.names.counters(account, day)).arg(&cursor).arg("COUNT").arg(COUNTERS_AT_ONCE);
            if let Some(key) = only {
                scan.arg("MATCH").arg(format!("{key} *"));
            }
            let (next, found): (String, Vec<(String, String)>) = self.link.ask(&scan).await?;
            for (counter, sums) in found {
                let parsed = parse_counter(&counter).zip(parse_counts(&sums));
                let (counter, counts) = parsed.ok_or_else(|| damaged("a counter"))?;
                counters.insert(counter, counts);
            }
            if next == "0" {
                return Ok(counters);
            }
            cursor = next;
        }
    }
}

fn parse_entry(number: u64, generation: &str, record: &str) -> Option<JournalEntry> {
    Some(JournalEntry { number, generation: generation.parse().ok()?, settlement: fold::settled(record)? })
}

fn parse_counter(text: &str) -> Option<(KeyId, String)> {
    let (key, model) = text.split_once(' ')?;
    Some((key.parse().ok()?, model.to_owned()))
}

fn parse_counts(text: &str) -> Option<Counts> {
    let sums: Vec<u64> = text.split(' ').map(|sum| sum.parse().ok()).collect::<Option<_>>()?;
    let [requests, prompt, cached, completion, charged] = sums[..] else { return None };
    let charged = NanoUsd::from_nanos(i64::try_from(charged).ok()?);
    Some(Counts { requests, usage: Usage { prompt, cached, completion }, charged })
}
