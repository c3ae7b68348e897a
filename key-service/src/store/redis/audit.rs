//! Audit of an account while spending continues: reads of about a millisecond each, which together equal a read of a
//! single moment.
//!
//! Entries of the journal are only ever appended, and dropped at the beginning of the journal. The audit reads pieces
//! from the oldest on until no entry is left, and reads the figures of some keys at the very moment at which none is
//! left. If entries were dropped unread, the audit starts again.

use std::collections::HashMap;

use redis::cmd;
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
};

use super::{
    Redis,
    books::{ADDITIONS_AT_ONCE, Addition, addition_of},
    records::{self, FundsRecord, damaged},
    script::Arguments,
};
use crate::store::{Keys, Order, Page, StoreError};
use domain::audit::{Audit, AuditedEntry, Auditor};

/// Keys in a read. Each read adds up the open holds again, about a microsecond a hold.
const KEYS_AT_ONCE: usize = 500;
/// Stream id before all additions.
const NOTHING_READ: &str = "0-0";

/// Result of reading the books once.
pub(super) enum Attempt {
    Done(Option<Audit>),
    /// Entries were dropped unread.
    Overtaken,
}

/// An answer of `scripts/audit.lua`: further entries and, if these are the last, all figures of that moment.
struct Look {
    additions: Vec<Addition>,
    figures: Option<Figures>,
}

/// Figures of a single moment.
struct Figures {
    funds: FundsRecord,
    /// Balances of each requested key.
    keys: Vec<Option<Vec<u8>>>,
    /// Sums of open holds by the bytes of a key's id.
    holds: HashMap<Vec<u8>, i64>,
    deposits: Vec<i64>,
}

/// The raw answer.
type AuditReply = (Vec<Addition>, Option<Vec<u8>>, Vec<Option<Vec<u8>>>, Vec<(Vec<u8>, i64)>, Vec<i64>);

impl Redis {
    /// Goes through the books once.
    pub(super) async fn go_through(&self, account: AccountId) -> Result<Attempt, StoreError> {
        let (mut reading, mut after) = (Reading::begin(1), None);
        loop {
            let page = Page { after, order: Order::Ascending, status: None, limit: KEYS_AT_ONCE };
            let keys = self.key_ids(account, page).await?;
            let figures = loop {
                let Some(look) = self.look(account, &reading.last_id, &keys).await? else {
                    return Ok(Attempt::Done(None));
                };
                if reading.last_id == NOTHING_READ
                    && let Some(first) = look.additions.first()
                {
                    reading = Reading::begin(addition_of(first)?.0);
                }
                let overtaken = reading.is_overtaken(&look.additions)?;
                if overtaken && self.first_number(account).await? > reading.next {
                    return Ok(Attempt::Overtaken);
                }
                reading.entries(&look.additions)?;
                if let Some(figures) = look.figures {
                    break figures;
                }
            };
            reading.keys(&keys, &figures)?;
            after = keys.last().copied().or(after);
            if keys.len() < KEYS_AT_ONCE {
                return self.finish(account, reading.auditor, &figures).await;
            }
        }
    }

    /// Number of the first entry still in the journal; 1 for an empty journal, since entries are never all dropped.
    async fn first_number(&self, account: AccountId) -> Result<u64, StoreError> {
        let mut question = cmd("XRANGE");
        question.arg(self.key_space.journal(account)).arg("-").arg("+").arg("COUNT").arg(1);
        let first: Vec<Addition> = self.client.ask(&question).await?;
        first.first().map_or(Ok(1), |first| Ok(addition_of(first)?.0))
    }

    /// Adds the figures to the audit. A key that has entries but was not listed may have been made after its page was
    /// read.
    async fn finish(
        &self,
        account: AccountId,
        auditor: Auditor,
        figures: &Figures,
    ) -> Result<Attempt, StoreError> {
        for key in auditor.unknown() {
            if self.key(account, key).await?.is_some() {
                return Ok(Attempt::Overtaken);
            }
        }
        let held = NanoUsd::from_nanos(figures.holds.values().sum());
        let deposits = figures.deposits.iter().copied().map(NanoUsd::from_nanos);
        Ok(Attempt::Done(Some(auditor.account(figures.funds.account(), held, deposits))))
    }

    async fn look(
        &self,
        account: AccountId,
        last_id: &str,
        keys: &[KeyId],
    ) -> Result<Option<Look>, StoreError> {
        let key_space = &self.key_space;
        let mut arguments = Arguments::keys([
            key_space.account(account),
            key_space.holds(account),
            key_space.journal(account),
            key_space.deposits(account),
        ])
        .with(last_id)
        .with(ADDITIONS_AT_ONCE.to_string());
        for key in keys {
            arguments.value(*key.as_bytes());
        }
        let answer: Option<redis::Value> = self.client.run(&self.scripts.audit, &arguments).await?;
        let Some(answer) = answer else { return Ok(None) };
        let redis::Value::Array(parts) = &answer else { return Err(damaged("the answer to an audit")) };
        if let [additions] = &parts[..] {
            let additions = redis::from_redis_value(additions.clone())?;
            return Ok(Some(Look { additions, figures: None }));
        }
        let (additions, funds, keys, holds, deposits): AuditReply = redis::from_redis_value(answer)?;
        let funds = FundsRecord::read(&funds.ok_or_else(|| damaged("the funds of an account"))?)?;
        let holds = holds.into_iter().collect();
        let figures = Some(Figures { funds, keys, holds, deposits });
        Ok(Some(Look { additions, figures }))
    }
}

/// The entries that were read so far.
struct Reading {
    auditor: Auditor,
    /// The number of the next entry.
    next: u64,
    /// The id of the last addition.
    last_id: String,
}

impl Reading {
    fn begin(first: u64) -> Self {
        Self { auditor: Auditor::new(first == 1), next: first, last_id: NOTHING_READ.to_owned() }
    }

    /// Returns whether entries are missing before `additions`.
    fn is_overtaken(&self, additions: &[Addition]) -> Result<bool, StoreError> {
        additions.first().map_or(Ok(false), |first| Ok(addition_of(first)?.0 > self.next))
    }

    fn entries(&mut self, additions: &[Addition]) -> Result<(), StoreError> {
        for addition in additions {
            let (number, text) = addition_of(addition)?;
            for read in records::read_entries(number, text)? {
                self.auditor.entry(AuditedEntry::of(read.number, &read.entry));
                self.next = read.number + 1;
            }
            self.last_id.clone_from(&addition.0);
        }
        Ok(())
    }

    fn keys(&mut self, ids: &[KeyId], figures: &Figures) -> Result<(), StoreError> {
        for (id, record) in ids.iter().zip(&figures.keys) {
            let key = records::read_spend(record.as_deref().ok_or_else(|| damaged("a key"))?)?;
            let holds = figures.holds.get(&id.as_bytes()[..]).copied().unwrap_or(0);
            self.auditor.key(*id, &key, NanoUsd::from_nanos(holds));
        }
        Ok(())
    }
}
