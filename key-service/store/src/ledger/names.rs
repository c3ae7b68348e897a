//! Names of the ledger's records, indexes and logs in the space of an account.

use std::sync::Arc;

use domain::{ledger::Payer, usage::Day};
use shared::{
    ids::{AccountId, DepositId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

use crate::records::{Index, Log, Name, Set, Space};

/// Money of the account, of keys and of groups.
const MONEY: u8 = 1;
/// Generations, by ten minutes of their time.
const GENERATIONS: u8 = 2;
/// Bills of expired generations, by the day of their time.
const EXPIRED: u8 = 3;
const DEPOSITS: u8 = 4;
/// Sums, by day.
const SUMS: u8 = 5;
/// Thresholds that were told.
const TOLD: u8 = 6;

/// Open holds in the order in which they expire: lease, generation, key.
pub(super) const DUE: Index = Index(1);
/// Keys that have spent money, the largest spend first, of equal ones the newest first.
pub(super) const SPENDERS: Index = Index(2);
/// Events of keys and groups: subject, number.
pub(super) const EVENTS_OF: Index = Index(3);
/// Deposits: time, id.
pub(super) const DEPOSITED: Index = Index(4);

pub(super) const JOURNAL: Log = Log(1);
pub(super) const EVENTS: Log = Log(2);

/// Milliseconds of a part of the generations.
const TEN_MINUTES: i64 = 10 * 60 * 1000;

/// The space of an account.
pub(super) fn space(account: AccountId) -> Space {
    Space::new(account.to_string())
}

/// Key, groups and model that pay, as bytes: fixed lengths first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PayerName(Arc<[u8]>);

impl PayerName {
    pub(super) fn of(Payer { key, model, groups }: &Payer) -> Self {
        let mut name = Vec::with_capacity(50 + model.len());
        name.push(b'p');
        name.extend(key.as_bytes());
        for group in groups {
            name.extend(group.as_ref().map_or(&[0; 16], GroupId::as_bytes));
        }
        name.extend(model.as_bytes());
        Self(name.into())
    }
}

fn name(table: u8, part: u32, key: impl Into<Arc<[u8]>>) -> Name {
    Name { set: Set { table, part }, key: key.into() }
}

fn tagged(tag: u8, id: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + id.len());
    key.push(tag);
    key.extend(id);
    key
}

/// A part by time; times before 1970 are in the first.
fn part(at: Timestamp, millis: i64) -> u32 {
    u32::try_from(at.millis() / millis).unwrap_or_default()
}

fn day_part(day: Day) -> u32 {
    u32::try_from(day.number()).unwrap_or_default()
}

pub(super) fn account() -> Name {
    name(MONEY, 0, *b"a")
}

pub(super) fn turn() -> Name {
    name(MONEY, 0, *b"t")
}

pub(super) fn key(id: KeyId) -> Name {
    name(MONEY, 0, tagged(b'k', id.as_bytes()))
}

pub(super) fn group(id: GroupId) -> Name {
    name(MONEY, 0, tagged(b'g', id.as_bytes()))
}

pub(super) fn generation(id: GenerationId) -> Name {
    name(GENERATIONS, part(id.created_at(), TEN_MINUTES), *id.as_bytes())
}

pub(super) fn expired(id: GenerationId) -> Name {
    name(EXPIRED, day_part(Day::of(id.created_at())), *id.as_bytes())
}

pub(super) fn deposit(id: DepositId) -> Name {
    name(DEPOSITS, 0, *id.as_bytes())
}

pub(super) fn of_payer(day: Day, PayerName(payer): &PayerName) -> Name {
    name(SUMS, day_part(day), Arc::clone(payer))
}

pub(super) fn of_model(day: Day, model: &str) -> Name {
    name(SUMS, day_part(day), tagged(b'm', model.as_bytes()))
}

pub(super) fn of_group(day: Day, group: GroupId) -> Name {
    name(SUMS, day_part(day), tagged(b'g', group.as_bytes()))
}

pub(super) fn told(once: &[u8]) -> Name {
    name(TOLD, 0, once)
}

/// Entry of [`DUE`].
pub(super) fn due(lease_until: u64, generation: GenerationId, key: KeyId) -> Vec<u8> {
    let mut entry = Vec::with_capacity(40);
    entry.extend(lease_until.to_be_bytes());
    entry.extend(generation.as_bytes());
    entry.extend(key.as_bytes());
    entry
}

/// Entry of [`SPENDERS`]; `None` for a key that has spent nothing.
pub(super) fn spender(used: NanoUsd, key: KeyId) -> Option<Vec<u8>> {
    if used <= NanoUsd::ZERO {
        return None;
    }
    let mut entry = Vec::with_capacity(24);
    entry.extend((u64::MAX - used.nanos().unsigned_abs()).to_be_bytes());
    entry.extend((!u128::from_be_bytes(*key.as_bytes())).to_be_bytes());
    Some(entry)
}

/// Entry of [`EVENTS_OF`].
pub(super) fn event_of(subject: &[u8; 16], number: u64) -> Vec<u8> {
    let mut entry = Vec::with_capacity(24);
    entry.extend(subject);
    entry.extend(number.to_be_bytes());
    entry
}

/// Entry of [`DEPOSITED`].
pub(super) fn deposited(at: Timestamp, id: DepositId) -> Vec<u8> {
    let mut entry = Vec::with_capacity(24);
    entry.extend(at.millis().unsigned_abs().to_be_bytes());
    entry.extend(id.as_bytes());
    entry
}
