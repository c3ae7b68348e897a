//! Audit of an account while spending continues: reads of about a millisecond each, which together equal a read of a
//! single moment.
//!
//! Entries of the journal are only ever appended, and dropped at the beginning of the journal. The audit reads pieces
//! from the oldest on until no entry is left, and reads the figures of some keys at the very moment at which none is
//! left. If entries were dropped unread, the audit starts again.

use std::collections::HashMap;

use redis::cmd;
use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::NanoUsd,
};

use super::{
    Redis,
    journal::{ADDITIONS_AT_ONCE, Addition, addition_of},
    records::{self, FundsRecord, HoldSummary, damaged},
    script::Arguments,
};
use crate::store::{Groups, Keys, Order, StoreError};
use domain::audit::{Audit, AuditedEntry, Auditor};

/// Keys or groups in a read.
const BUDGETS_AT_ONCE: usize = 500;
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
    /// Balances of each requested key or group, and the opening balance behind, if there is one.
    balances: Vec<Option<Vec<u8>>>,
    holds: Vec<HoldSummary>,
    deposits: Vec<NanoUsd>,
}

/// The raw answer.
type AuditReply = (Vec<Addition>, Option<Vec<u8>>, Vec<Option<Vec<u8>>>, Vec<Vec<u8>>, Vec<String>);

/// Result of reading entries up to a moment.
enum Read {
    Figures(Figures),
    NoAccount,
    Overtaken,
}

impl Redis {
    /// Goes through the books once: groups first, then keys, and at last the account.
    pub(super) async fn go_through(&self, account: AccountId) -> Result<Attempt, StoreError> {
        let (mut reading, mut after) = (Reading::begin(1), None::<GroupId>);
        let (groups, keys) = (self.key_space.groups(account), self.key_space.keys(account));
        loop {
            let ids = self.ids_behind(&groups, after, Order::Ascending, BUDGETS_AT_ONCE).await?;
            let fields = with_openings(ids.iter().map(|id| records::group_field(*id)));
            match self.read_on(account, &mut reading, fields).await? {
                Read::Figures(figures) => reading.groups(&ids, &figures)?,
                Read::NoAccount => return Ok(Attempt::Done(None)),
                Read::Overtaken => return Ok(Attempt::Overtaken),
            }
            after = ids.last().copied();
            if ids.len() < BUDGETS_AT_ONCE {
                break;
            }
        }
        let mut after = None::<KeyId>;
        loop {
            let ids = self.ids_behind(&keys, after, Order::Ascending, BUDGETS_AT_ONCE).await?;
            let fields = with_openings(ids.iter().map(|id| id.as_bytes().to_vec()));
            let figures = match self.read_on(account, &mut reading, fields).await? {
                Read::Figures(figures) => figures,
                Read::NoAccount => return Ok(Attempt::Done(None)),
                Read::Overtaken => return Ok(Attempt::Overtaken),
            };
            reading.keys(&ids, &figures)?;
            after = ids.last().copied();
            if ids.len() < BUDGETS_AT_ONCE {
                return self.finish(account, reading.auditor, &figures).await;
            }
        }
    }

    /// Reads entries until none follow, and the figures of that moment.
    async fn read_on(
        &self,
        account: AccountId,
        reading: &mut Reading,
        fields: Vec<Vec<u8>>,
    ) -> Result<Read, StoreError> {
        loop {
            let Some(look) = self.look(account, &reading.last_id, &fields).await? else {
                return Ok(Read::NoAccount);
            };
            if reading.last_id == NOTHING_READ
                && let Some(first) = look.additions.first()
            {
                *reading = Reading::begin(addition_of(first)?.0);
            }
            let overtaken = reading.is_overtaken(&look.additions)?;
            if overtaken && self.first_number(account).await? > reading.next {
                return Ok(Read::Overtaken);
            }
            reading.entries(&look.additions)?;
            if let Some(figures) = look.figures {
                return Ok(Read::Figures(figures));
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

    /// Adds the figures to the audit. A key or group that has entries but was not listed may have been made after its
    /// page was read.
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
        for group in auditor.unknown_groups() {
            if self.group(account, group).await?.is_some() {
                return Ok(Attempt::Overtaken);
            }
        }
        let held = sum(figures.holds.iter());
        let deposits = figures.deposits.iter().copied();
        Ok(Attempt::Done(Some(auditor.account(figures.funds.account(), held, deposits))))
    }

    async fn look(
        &self,
        account: AccountId,
        last_id: &str,
        fields: &[Vec<u8>],
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
        for field in fields {
            arguments.value(field.as_slice());
        }
        let answer: Option<redis::Value> = self.client.run(&self.scripts.audit, &arguments).await?;
        let Some(answer) = answer else { return Ok(None) };
        let redis::Value::Array(parts) = &answer else { return Err(damaged("the answer to an audit")) };
        if let [additions] = &parts[..] {
            let additions = redis::from_redis_value(additions.clone())?;
            return Ok(Some(Look { additions, figures: None }));
        }
        let (additions, funds, balances, holds, deposits): AuditReply = redis::from_redis_value(answer)?;
        let funds = FundsRecord::read(&funds.ok_or_else(|| damaged("the funds of an account"))?)?;
        // A damaged hold holds nothing that can be proven.
        let holds = holds.iter().filter_map(|hold| records::read_hold(hold)).collect();
        let deposits = deposits.iter().map(|text| Ok(records::read_deposit(text)?.amount));
        let deposits = deposits.collect::<Result<_, StoreError>>()?;
        let figures = Some(Figures { funds, balances, holds, deposits });
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

    fn groups(&mut self, ids: &[GroupId], figures: &Figures) -> Result<(), StoreError> {
        for (id, balances) in ids.iter().zip(figures.balances.chunks_exact(2)) {
            let (record, opening) = balances_of(balances)?;
            let group = records::read_group_spend(record.ok_or_else(|| damaged("a group"))?)?;
            let holds = figures.holds.iter().filter(|hold| hold.groups.contains(&Some(*id)));
            self.auditor.group(*id, &group, opening, sum(holds));
        }
        Ok(())
    }

    fn keys(&mut self, ids: &[KeyId], figures: &Figures) -> Result<(), StoreError> {
        let mut holds: HashMap<KeyId, i64> = HashMap::new();
        for hold in &figures.holds {
            *holds.entry(hold.key).or_default() += hold.amount.nanos();
        }
        for (id, balances) in ids.iter().zip(figures.balances.chunks_exact(2)) {
            let (record, opening) = balances_of(balances)?;
            let key = records::read_spend(record.ok_or_else(|| damaged("a key"))?)?;
            let held = holds.get(id).copied().unwrap_or(0);
            self.auditor.key(*id, &key, opening, NanoUsd::from_nanos(held));
        }
        Ok(())
    }
}

/// Fields of keys or groups, each followed by the field of the opening balance.
fn with_openings(fields: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let with_opening = |field: Vec<u8>| {
        let opening = records::opening_field(&field);
        [field, opening]
    };
    fields.flat_map(with_opening).collect()
}

/// The record of a key or a group, and its opening balance.
fn balances_of(balances: &[Option<Vec<u8>>]) -> Result<(Option<&[u8]>, NanoUsd), StoreError> {
    let [record, opening] = balances else { return Err(damaged("the answer to an audit")) };
    let nanos = |text: &Vec<u8>| {
        let nanos = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        nanos.map(NanoUsd::from_nanos).ok_or_else(|| damaged("an opening balance"))
    };
    Ok((record.as_deref(), opening.as_ref().map(nanos).transpose()?.unwrap_or_default()))
}

/// Sum of the amounts of holds.
fn sum<'a>(holds: impl Iterator<Item = &'a HoldSummary>) -> NanoUsd {
    NanoUsd::from_nanos(holds.map(|hold| hold.amount.nanos()).sum())
}
