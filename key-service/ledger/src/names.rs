//! Names of the ledger's records, indexes and logs in the space of an account.

pub mod nouns;
mod record_name;

use domain::{
    event::Event,
    ledger::{Group, GroupChain, Hold, Key, Record},
    usage::{Counts, Day, DayTotal, GroupDay, Margin, UserDay},
};
use records::{Index, Log, Name, NameBytes, Space};
use shared::{
    ids::{AccountId, DepositId, EventId, GenerationId, GroupId, KeyId},
    money::NanoUsd,
    time::Timestamp,
};

pub use self::record_name::RecordName;
use crate::stored::{AccountRecord, Balance, EventsKept, House, PayersOfKey, Told, Turn};
pub use crate::stored::{PayerName, day_part};

/// Money of the account, of its keys and of its groups.
pub const MONEY: u8 = 1;
/// Generations. Each part has the generations that began within the same ten minutes.
pub const GENERATIONS: u8 = 2;
/// Bills of expired generations. Each part has the bills of one day.
pub const EXPIRED: u8 = 3;
/// Deposits. They are kept forever, so that each deposit counts only once.
pub const DEPOSITS: u8 = 4;
/// Daily sums per payer: a key, its groups and a model.
pub const SUMS: u8 = 5;
/// Thresholds that were reported, so that no threshold is reported twice.
pub const TOLD: u8 = 6;
/// The record of the sets that housekeeping has dropped.
const HOUSE: u8 = 16;
/// Daily sums per model. They are separate from the sums per payer, of which there may be very many.
pub const SPEND: u8 = 27;
/// Daily sums per group, including its child groups.
pub const GROUP_SPEND: u8 = 28;
/// Daily sums per user. A record has the sums of several users.
pub const USERS: u8 = 29;
/// Lists of each key's payers.
pub const PAYERS: u8 = 30;
/// The tables whose sets have daily sums.
pub const SETS_OF_DAYS: [u8; 4] = [SUMS, SPEND, GROUP_SPEND, USERS];
/// Tables whose records lanes keep as copies, because later commands need them again.
pub(crate) const READ_AGAIN: [u8; 6] = [MONEY, TOLD, SUMS, SPEND, GROUP_SPEND, USERS];

/// Open holds in order of expiry: end of the lease, generation, key, amount, levels that count it, groups. An audit
/// reads all holds at one moment from this index.
pub const DUE: Index = Index(1);
/// Keys that have spent money, the highest spend first. Of keys with equal spend, the newest comes first.
pub const SPENDERS: Index = Index(2);
/// Events of keys and groups: subject, number.
pub const EVENTS_OF: Index = Index(3);
/// Deposits by time: the time, then the id.
pub const DEPOSITED: Index = Index(4);
/// Events by id: id, number.
pub const EVENT_IDS: Index = Index(5);
/// Thresholds by the event that reported them: number, name.
pub const TOLD_AT: Index = Index(6);

/// Entries of the journal, one for each settlement.
pub const JOURNAL: Log = Log(1);
/// Events of the account, in the order of their numbers.
pub const EVENTS: Log = Log(2);

/// Each part of the generations covers this many milliseconds.
pub const TEN_MINUTES: i64 = 10 * 60 * 1000;

/// Returns the space that stores an account's records.
pub fn space(account: AccountId) -> Space {
    Space::new(account.to_string())
}

fn tagged(tag: u8, name: &[u8]) -> NameBytes {
    NameBytes::concat([&[tag], name])
}

/// Returns the number of the part that contains a time, if parts have this many milliseconds. Times before 1970 are in
/// the first part.
pub fn part(at: Timestamp, millis: i64) -> u32 {
    u32::try_from(at.millis() / millis).unwrap_or_default()
}

pub fn account() -> RecordName<AccountRecord> {
    RecordName::new(MONEY, 0, *b"a")
}

/// Names the record of the turn. Only one process at a time has the turn, and every commit of a lane has a guard on
/// this record.
pub fn turn() -> RecordName<Turn> {
    RecordName::new(MONEY, 0, *b"t")
}

/// Names the record about the events that are kept: the number of the first event, and the total bytes.
pub fn events() -> RecordName<EventsKept> {
    RecordName::new(MONEY, 0, *b"e")
}

/// Names the record of the sets that housekeeping has dropped.
pub fn house() -> RecordName<House> {
    RecordName::new(HOUSE, 0, *b"h")
}

/// Names the record of a key's money and bounds.
pub fn key(id: KeyId) -> RecordName<Balance<Key>> {
    RecordName::new(MONEY, 0, tagged(b'k', id.as_bytes()))
}

/// Returns the key whose money and bounds have this name.
pub(crate) fn of_key(name: &Name) -> Option<KeyId> {
    KeyId::from_slice(name.key.strip_prefix(b"k").filter(|_| name.set.table == MONEY)?)
}

/// Names the record of a group's money and bounds.
pub fn group(id: GroupId) -> RecordName<Balance<Group>> {
    RecordName::new(MONEY, 0, tagged(b'g', id.as_bytes()))
}

/// Names the record of a generation that has an open hold or ended recently.
pub fn generation(id: GenerationId) -> RecordName<Record> {
    RecordName::new(GENERATIONS, part(id.created_at(), TEN_MINUTES), *id.as_bytes())
}

/// Returns the generation whose record has this name.
pub(crate) fn of_generation(name: &Name) -> Option<GenerationId> {
    (name.set.table == GENERATIONS).then(|| GenerationId::from_slice(&name.key))?
}

/// Names the record of an expired generation's bill.
pub fn expired(id: GenerationId) -> RecordName<Record> {
    RecordName::new(EXPIRED, day_part(Day::of(id.created_at())), *id.as_bytes())
}

/// Names the record of a deposit. Because of this record, the deposit counts only once.
pub fn deposit(id: DepositId) -> RecordName<Record> {
    RecordName::new(DEPOSITS, 0, *id.as_bytes())
}

/// Names the record of a payer's usage on a day.
pub fn of_payer(day: Day, payer: &PayerName) -> RecordName<Balance<DayTotal<Counts>>> {
    RecordName::new(SUMS, day_part(day), payer.bytes().clone())
}

/// Names the record of a model's charges on a day.
pub fn of_model(day: Day, model: &str) -> RecordName<Balance<DayTotal<Margin>>> {
    RecordName::new(SPEND, day_part(day), model_sum(model))
}

/// Names the record of a group's charges on a day.
pub fn of_group(day: Day, group: GroupId) -> RecordName<Balance<GroupDay>> {
    RecordName::new(GROUP_SPEND, day_part(day), group_sum(group))
}

/// Names the record of some users' charges on a day.
pub fn of_users(day: Day, part: u8) -> RecordName<Balance<UserDay>> {
    RecordName::new(USERS, day_part(day), user_sums(part))
}

/// Names the record with the list of a key's payers.
pub fn payers(key: KeyId) -> RecordName<PayersOfKey> {
    RecordName::new(PAYERS, 0, tagged(b'k', key.as_bytes()))
}

/// Names a model's sums in a day's set.
pub fn model_sum(model: &str) -> NameBytes {
    tagged(b'm', model.as_bytes())
}

/// Names a group's sums in a day's set.
pub fn group_sum(group: GroupId) -> NameBytes {
    tagged(b'g', group.as_bytes())
}

/// Names the sums for a part of the users in a day's set.
pub fn user_sums(part: u8) -> NameBytes {
    tagged(b'u', &[part])
}

/// Names the record of a reported threshold.
pub fn told(once: &[u8]) -> RecordName<Told> {
    RecordName::new(TOLD, 0, once)
}

pub fn due(generation: GenerationId, hold: &Hold) -> Vec<u8> {
    let Hold { payer, origin: _, amount, reported: _, lease_until, counted } = hold;
    let mut entry = Vec::with_capacity(81);
    entry.extend(lease_until.to_be_bytes());
    entry.extend(generation.as_bytes());
    entry.extend(payer.key.as_bytes());
    entry.extend(amount.nanos().to_be_bytes());
    entry.push(levels(counted.levels));
    payer.groups.iter().flatten().for_each(|group| entry.extend(group.as_bytes()));
    entry
}

/// Reads the key and the generation from an entry of [`DUE`].
pub fn read_due(entry: &[u8]) -> Option<(KeyId, GenerationId)> {
    Some((KeyId::from_slice(entry.get(24..40)?)?, GenerationId::from_slice(entry.get(8..24)?)?))
}

/// The amount and the payers from an entry of [`DUE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueMoney {
    pub key: KeyId,
    /// The key's groups when the hold was opened.
    pub groups: GroupChain,
    pub amount: NanoUsd,
    /// Which budgets count the hold as a request in flight: the key's, the group's, the parent's.
    pub levels: [bool; 3],
}

impl DueMoney {
    /// Decodes an entry; `None` for any other bytes.
    pub fn read(entry: &[u8]) -> Option<Self> {
        let (key, _) = read_due(entry)?;
        let amount = NanoUsd::from_nanos(i64::from_be_bytes(entry.get(40..48)?.try_into().ok()?));
        let (levels, groups) = entry.get(48..)?.split_first()?;
        let group = |from: usize| groups.get(from..from + 16).and_then(GroupId::from_slice);
        Some(Self { key, groups: [group(0), group(16)], amount, levels: read_levels(*levels) })
    }
}

/// Encodes a key's entry in [`SPENDERS`]; `None` if the key has spent nothing.
pub fn spender(used: NanoUsd, key: KeyId) -> Option<Vec<u8>> {
    if used <= NanoUsd::ZERO {
        return None;
    }
    let mut entry = Vec::with_capacity(24);
    entry.extend((u64::MAX - used.nanos().unsigned_abs()).to_be_bytes());
    entry.extend((!u128::from_be_bytes(*key.as_bytes())).to_be_bytes());
    Some(entry)
}

/// Reads the key from an entry of [`SPENDERS`].
pub fn spending_key(entry: &[u8]) -> Option<KeyId> {
    let id = entry.get(size_of::<u64>()..)?.try_into().ok()?;
    KeyId::from_slice(&(!u128::from_be_bytes(id)).to_be_bytes())
}

pub fn event_of(subject: &[u8; 16], number: u64) -> Vec<u8> {
    let mut entry = Vec::with_capacity(24);
    entry.extend(subject);
    entry.extend(number.to_be_bytes());
    entry
}

/// Encodes the entries of an event in [`EVENTS_OF`]: one for its key and one for its group.
pub fn events_of(event: &Event, number: u64) -> impl Iterator<Item = Vec<u8>> + use<> {
    let subjects = [event.key.map(|id| *id.as_bytes()), event.group.map(|id| *id.as_bytes())];
    subjects.into_iter().flatten().map(move |id| event_of(&id, number))
}

/// Reads the event's number from an entry of [`EVENTS_OF`] or [`EVENT_IDS`].
pub fn event_number(entry: &[u8]) -> Option<u64> {
    entry.last_chunk().copied().map(u64::from_be_bytes)
}

pub fn event_id(id: EventId, number: u64) -> Vec<u8> {
    [&id.as_bytes()[..], &number.to_be_bytes()].concat()
}

pub fn told_at(number: u64, once: &[u8]) -> Vec<u8> {
    [&number.to_be_bytes()[..], once].concat()
}

/// Reads the event's number from an entry of [`TOLD_AT`].
pub fn told_number(entry: &[u8]) -> Option<u64> {
    entry.first_chunk().copied().map(u64::from_be_bytes)
}

/// Reads the threshold's name from an entry of [`TOLD_AT`].
pub fn told_name(entry: &[u8]) -> Option<&[u8]> {
    entry.get(size_of::<u64>()..)
}

pub fn deposited(at: Timestamp, id: DepositId) -> Vec<u8> {
    let mut entry = Vec::with_capacity(24);
    entry.extend(at.millis().unsigned_abs().to_be_bytes());
    entry.extend(id.as_bytes());
    entry
}

/// Encodes as bits which budgets count a hold as a request in flight: 1 for the key's, 2 for the group's, 4 for the
/// parent's.
pub(crate) fn levels(levels: [bool; 3]) -> u8 {
    levels.iter().rev().fold(0, |bits, counts| bits * 2 + u8::from(*counts))
}

pub(crate) fn read_levels(bits: u8) -> [bool; 3] {
    [1, 2, 4].map(|bit| bits & bit != 0)
}
