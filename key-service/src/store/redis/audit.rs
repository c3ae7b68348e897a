//! The audit of an account that others go on spending from: looks of a millisecond each, which together are as good as
//! one of a single moment.
//!
//! An entry of the journal never changes, except that a late capture moves it to the end, and that the oldest make room.
//! So the entries are added up from the oldest on, in pieces, until none is left; and the figures of some keys are read
//! at the very moment at which no entry is left. Whether an entry that was read moved since, or one that was not read
//! yet is gone, every look tells: then the audit begins anew.

use std::{collections::HashMap, io};

use redis::RedisResult;
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
};

use super::{Redis, fields::damaged, script::Arguments};
use crate::{
    domain::{
        audit::{Audit, Auditor},
        ledger,
    },
    store::{Order, Page},
};

/// Entries in one look: a millisecond of Redis.
const ENTRIES_AT_ONCE: usize = 500;
/// Keys in one look. Each look adds up the open holds anew, some 2 µs for each of them.
const KEYS_AT_ONCE: usize = 500;
/// How often an audit begins anew before it gives up: late captures are rare, and the oldest entries make room more
/// slowly than they are read.
const ATTEMPTS: u32 = 10;

/// What came of going through the books once.
enum Attempt {
    Done(Option<Audit>),
    /// What was read is no longer so.
    Moved,
}

/// An answer of `scripts/audit.lua`.
struct Look {
    money: ledger::Account,
    late: u64,
    gone_until: u64,
    archive: Vec<(String, i64)>,
    /// Number, key and charge.
    entries: Vec<(u64, String, i64)>,
    more_entries: bool,
    /// `used` and `held` of each key that was asked for; nothing where there is no such key.
    keys: Vec<(Option<i64>, Option<i64>)>,
    holds: HashMap<String, i64>,
    deposits: Vec<i64>,
}

/// The answer as it comes.
type Answer = (
    (i64, i64, u64),
    u64,
    Vec<(String, i64)>,
    Vec<(u64, String, i64)>,
    u8,
    Vec<(Option<i64>, Option<i64>)>,
    Vec<(String, i64)>,
    Vec<i64>,
);

impl Redis {
    /// `None` where there is no such account.
    pub(super) async fn audited(&self, account: AccountId) -> RedisResult<Option<Audit>> {
        for _ in 0..ATTEMPTS {
            match self.go_through(account).await? {
                Attempt::Done(audit) => return Ok(audit),
                Attempt::Moved => {}
            }
        }
        let why = "the journal moves faster than it can be read";
        Err(io::Error::new(io::ErrorKind::ResourceBusy, why).into())
    }

    async fn go_through(&self, account: AccountId) -> RedisResult<Attempt> {
        let Some(first) = self.look(account, None, &[]).await? else { return Ok(Attempt::Done(None)) };
        let (late, mut reading) = (first.late, Reading::default());
        reading.begin(&first)?;
        let mut after = None;
        loop {
            let page = Page { after, order: Order::Ascending, limit: KEYS_AT_ONCE };
            let keys = self.key_ids(account, page).await?;
            let look = loop {
                let look = self.look(account, Some(reading.last), &keys).await?;
                let look = look.ok_or_else(|| damaged("an account"))?;
                if look.late != late || look.gone_until > reading.last {
                    return Ok(Attempt::Moved);
                }
                reading.entries(&look)?;
                if !look.more_entries {
                    break look;
                }
            };
            reading.keys(&keys, &look)?;
            after = keys.last().copied().or(after);
            if keys.len() < KEYS_AT_ONCE {
                return self.finish(account, reading.auditor, &look).await;
            }
        }
    }

    /// A key that was charged and not seen may have been made after its page was read.
    async fn finish(&self, account: AccountId, auditor: Auditor, look: &Look) -> RedisResult<Attempt> {
        for key in auditor.unknown() {
            if self.read_key(account, key).await?.is_some() {
                return Ok(Attempt::Moved);
            }
        }
        let held = NanoUsd::from_nanos(look.holds.values().sum());
        let deposits = look.deposits.iter().copied().map(NanoUsd::from_nanos);
        Ok(Attempt::Done(Some(auditor.account(look.money, held, deposits))))
    }

    async fn look(
        &self,
        account: AccountId,
        behind: Option<u64>,
        keys: &[KeyId],
    ) -> RedisResult<Option<Look>> {
        let names = &self.names;
        let mut arguments = Arguments::keys([
            names.account(account),
            names.records(account),
            names.leases(account),
            names.journal(account),
            names.archive(account),
            names.deposits(account),
        ]);
        for key in keys {
            arguments.key(names.key(account, *key));
        }
        let behind = behind.map_or_else(String::new, |number| number.to_string());
        let arguments = arguments.with(behind).with(ENTRIES_AT_ONCE.to_string());
        let answer: Option<Answer> = self.link.run(&self.scripts.audit, &arguments).await?;
        Ok(answer.map(Look::from))
    }
}

impl From<Answer> for Look {
    fn from(answer: Answer) -> Self {
        let ((credit, held, late), gone_until, archive, entries, more, keys, holds, deposits) = answer;
        let money = ledger::Account { credit: NanoUsd::from_nanos(credit), held: NanoUsd::from_nanos(held) };
        let (more_entries, holds) = (more == 1, holds.into_iter().collect());
        Self { money, late, gone_until, archive, entries, more_entries, keys, holds, deposits }
    }
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    auditor: Auditor,
    /// The number of the last entry.
    last: u64,
}

impl Reading {
    /// The first look has what is gone already.
    fn begin(&mut self, look: &Look) -> RedisResult<()> {
        self.last = look.gone_until;
        for (key, sum) in &look.archive {
            self.auditor.archived(parse_key(key)?, NanoUsd::from_nanos(*sum));
        }
        self.entries(look)
    }

    fn entries(&mut self, look: &Look) -> RedisResult<()> {
        for (number, key, charged) in &look.entries {
            self.last = *number;
            // An entry whose record is lost proves nothing: its key's figure will not be met.
            if !key.is_empty() {
                self.auditor.entry(parse_key(key)?, NanoUsd::from_nanos(*charged));
            }
        }
        Ok(())
    }

    fn keys(&mut self, ids: &[KeyId], look: &Look) -> RedisResult<()> {
        for (id, (used, held)) in ids.iter().zip(&look.keys) {
            let figure =
                |figure: Option<i64>| figure.map(NanoUsd::from_nanos).ok_or_else(|| damaged("a key"));
            let key = ledger::Key { used: figure(*used)?, held: figure(*held)?, ..ledger::Key::default() };
            let holds = look.holds.get(&id.to_string()).copied().unwrap_or(0);
            self.auditor.key(*id, &key, NanoUsd::from_nanos(holds));
        }
        Ok(())
    }
}

fn parse_key(text: &str) -> RedisResult<KeyId> {
    text.parse().map_err(|_| damaged("the key of an entry"))
}
