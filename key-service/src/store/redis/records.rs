//! Formats of records in Redis: packed numbers that the scripts read with `struct`, and hashes of texts.
//!
//! Numbers are big-endian doubles, exact below 2^53. An unset limit or time is infinite. Texts at the end of a record
//! have a length of two bytes in front, so that records can follow each other.

use std::collections::HashMap;

use redis::{ErrorKind, RedisError, RedisResult};
use shared::{
    ids::{GenerationId, KeyId, ManagementKeyId, MemberId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use super::script::Arguments;
use crate::store::{JournalEntry, ManagementKey};
use domain::{
    digest::Digest,
    key::ApiKey,
    ledger::{self, Ending, Entry, Payer, Progress, Settlement},
    member::{LinkMaker, MadeLink, Member, PasswordHash, Role, Session, SignInWay},
    usage::Counts,
};

/// A hash of texts.
pub(super) type Fields = HashMap<String, String>;

/// Fields and values of a hash, and the cursor for the rest (`HSCAN`).
pub(super) type Scanned = (String, Vec<(Vec<u8>, Vec<u8>)>);

/// Field of an account's hash with the funds.
pub(super) const FUNDS: &str = "funds";

/// Sums above 2^53 are stored as a multiple of this number and a remainder.
const CARRY: i64 = 1_000_000_000_000_000;

/// Codes of a bill's ending, as in `scripts/ledger/arguments.lua`.
const CAPTURED: u8 = 0;
const ESTIMATED: u8 = 1;
const EXPIRED: u8 = 2;

/// A limit or a time that may be absent.
struct Setting<T>(Option<T>);

/// Reads a record from the beginning.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn double(&mut self) -> Option<f64> {
        Some(f64::from_be_bytes(self.bytes()?))
    }

    /// A number that is always set.
    #[expect(clippy::cast_possible_truncation, reason = "a whole number that is far below 2^63")]
    fn number(&mut self) -> Option<i64> {
        self.double().filter(|n| n.is_finite()).map(|n| n as i64)
    }

    /// A number that may be infinite, which means absent: `convert` is then not called.
    fn optional<T>(&mut self, convert: impl FnOnce(i64) -> T) -> Option<Setting<T>> {
        let mut rest = Self(self.0);
        if self.double()?.is_finite() {
            return rest.number().map(|n| Setting(Some(convert(n))));
        }
        Some(Setting(None))
    }

    fn money(&mut self) -> Option<NanoUsd> {
        self.number().map(NanoUsd::from_nanos)
    }

    /// A sum that may exceed 2^53.
    fn sum(&mut self) -> Option<NanoUsd> {
        let (high, low) = (self.number()?, self.number()?);
        high.checked_mul(CARRY)?.checked_add(low).map(NanoUsd::from_nanos)
    }

    fn count(&mut self) -> Option<u64> {
        self.number().and_then(|n| u64::try_from(n).ok())
    }

    fn key(&mut self) -> Option<KeyId> {
        KeyId::from_slice(self.take(16)?)
    }

    /// The id of a key, and a model.
    pub(super) fn payer(&mut self) -> Option<(KeyId, String)> {
        let key = self.key()?;
        let length = u16::from_be_bytes(self.bytes()?);
        Some((key, String::from_utf8(self.take(length.into())?.to_vec()).ok()?))
    }

    fn usage(&mut self) -> Option<Usage> {
        let mut tokens = || Some(u64::from_be_bytes(self.bytes()?));
        Some(Usage::of(tokens()?, tokens()?, tokens()?))
    }
}

/// Encodes a number for the scripts.
#[expect(
    clippy::cast_precision_loss,
    reason = "callers keep to whole numbers below 2^53, or mean more than anyone owns"
)]
pub(super) fn double(n: i64) -> [u8; 8] {
    (n as f64).to_be_bytes()
}

fn optional(n: Option<i64>) -> [u8; 8] {
    n.map_or_else(|| f64::INFINITY.to_be_bytes(), double)
}

/// Encodes an amount for the ledger. Amounts above the largest are cut to a nano-USD more than the largest, which keeps
/// the decision.
pub(super) fn amount(amount: NanoUsd) -> i64 {
    amount.nanos().clamp(-1, NanoUsd::MAX.nanos() + 1)
}

/// Money, lease time, and length of the journal of an account.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FundsRecord {
    pub(super) credit: NanoUsd,
    pub(super) held: NanoUsd,
    pub(super) tick: u64,
}

impl FundsRecord {
    /// The funds of a new account: credit, held, tick, entries, last expiry, hour of the last settlement.
    pub(super) const NEW: [u8; 48] = [0; 48];

    pub(super) fn read(record: &[u8]) -> RedisResult<Self> {
        let mut reader = Reader(record);
        let mut read =
            || Some(Self { credit: reader.money()?, held: reader.money()?, tick: reader.count()? });
        read().ok_or_else(|| damaged("the funds of an account"))
    }

    pub(super) fn account(self) -> ledger::Account {
        ledger::Account { credit: self.credit, held: self.held, tick: self.tick }
    }
}

/// Writes the ledger's part of a key, as a field of the account's hash.
pub(super) fn write_spend(key: &ledger::Key) -> Vec<u8> {
    let ledger::Key { budget, group: _, expires_at, revoked_at, last_used_at } = key;
    let ledger::Budget { limit, used, held, bounds: _ } = budget;
    let (high, low) = (used.nanos().div_euclid(CARRY), used.nanos().rem_euclid(CARRY));
    [
        optional(limit.map(amount)),
        double(high),
        double(low),
        double(held.nanos()),
        optional(expires_at.map(Timestamp::millis)),
        optional(revoked_at.map(Timestamp::millis)),
        optional(last_used_at.map(Timestamp::millis)),
    ]
    .concat()
}

/// Decodes the ledger's part of a key.
pub(super) fn read_spend(record: &[u8]) -> RedisResult<ledger::Key> {
    let mut reader = Reader(record);
    let mut read = || {
        Some(ledger::Key {
            budget: ledger::Budget {
                limit: reader.optional(NanoUsd::from_nanos)?.0,
                used: reader.sum()?,
                held: reader.money()?,
                bounds: None,
            },
            group: None,
            expires_at: reader.optional(Timestamp::from_millis)?.0,
            revoked_at: reader.optional(Timestamp::from_millis)?.0,
            last_used_at: reader.optional(Timestamp::from_millis)?.0,
        })
    };
    read().ok_or_else(|| damaged("the balances of a key"))
}

/// Encodes a change of a limit or a time for a script; empty for no change.
pub(super) fn write_setting(value: Option<i64>) -> Vec<u8> {
    optional(value).to_vec()
}

/// The id of a key and a model: the end of every hold and settlement, and the name of a counter.
pub(super) fn write_payer(key: KeyId, model: &str) -> Vec<u8> {
    let length = u16::try_from(model.len()).unwrap_or(u16::MAX);
    [key.as_bytes(), &length.to_be_bytes()[..], &model.as_bytes()[..length.into()]].concat()
}

/// Bytes of an encoded bill: ending, cost and usage.
pub(super) const BILL_SIZE: usize = 33;

/// Encodes a bill for the ledger.
pub(super) fn write_bill(progress: Progress, ending: Ending, estimated: bool) -> [u8; BILL_SIZE] {
    let Progress { usage: Usage { prompt, cached, completion, .. }, cost, upstream_cost: _ } = progress;
    let mut bill = [0; BILL_SIZE];
    bill[0] = match (ending, estimated) {
        (Ending::Expired, _) => EXPIRED,
        (Ending::Captured, true) => ESTIMATED,
        (Ending::Captured, false) => CAPTURED,
    };
    bill[1..9].copy_from_slice(&double(amount(cost)));
    bill[9..17].copy_from_slice(&prompt.to_be_bytes());
    bill[17..25].copy_from_slice(&cached.to_be_bytes());
    bill[25..].copy_from_slice(&completion.to_be_bytes());
    bill
}

/// Reads the fields of an open hold that are needed outside the ledger: the key, and the tick of the hold's end.
pub(super) fn read_hold(record: &[u8]) -> Option<(KeyId, u64)> {
    let mut reader = Reader(record);
    let (b"H", _amount, lease_until) = (reader.take(1)?, reader.money()?, reader.count()?) else {
        return None;
    };
    reader.take(BILL_SIZE)?;
    Some((reader.payer()?.0, lease_until))
}

/// Reads a settlement with the effect on the key's balance. An entry of the journal ends with these fields.
pub(super) fn read_settlement(reader: &mut Reader<'_>) -> Option<Entry> {
    let b"S" = reader.take(1)? else { return None };
    let at = Timestamp::from_millis(reader.number()?);
    let (charged, delta, used_after) = (reader.money()?, reader.money()?, reader.sum()?);
    let ([ending], cost, usage) = (reader.bytes()?, reader.money()?, reader.usage()?);
    let (key, model) = reader.payer()?;
    let (ending, estimated) = match ending {
        CAPTURED => (Ending::Captured, false),
        ESTIMATED => (Ending::Captured, true),
        EXPIRED => (Ending::Expired, true),
        _ => return None,
    };
    let payer = Payer::alone(key, model);
    let settlement = Settlement { payer, usage, cost, upstream_cost: None, charged, ending, estimated, at };
    Some(Entry { settlement, delta, used_after })
}

/// Reads the entries of an addition to the journal; `number` is the number of the first entry.
pub(super) fn read_entries(mut number: u64, text: &[u8]) -> RedisResult<Vec<JournalEntry>> {
    let (mut reader, mut entries) = (Reader(text), Vec::new());
    while !reader.0.is_empty() {
        let generation = reader.take(16).and_then(GenerationId::from_slice);
        let entry = generation.zip(read_settlement(&mut reader));
        let (generation, entry) = entry.ok_or_else(|| damaged("an entry of a journal"))?;
        entries.push(JournalEntry { number, generation, entry });
        number += 1;
    }
    Ok(entries)
}

/// A counter.
pub(super) fn read_counts(record: &[u8]) -> Option<Counts> {
    let mut reader = Reader(record);
    Some(Counts {
        requests: reader.count()?,
        usage: Usage::of(reader.count()?, reader.count()?, reader.count()?),
        charged: reader.money()?,
        ..Counts::default()
    })
}

/// Adds the texts of a key to the arguments of a script.
pub(super) fn write_key(arguments: &mut Arguments, key: &ApiKey) {
    let ApiKey { id: _, label, hint, created_at, spend: _ } = key;
    write(
        arguments,
        [("label", label.as_str()), ("hint", hint.as_str())],
        [("created_at", Some(created_at.millis()))],
    );
}

/// Names of a key's texts, in the order of [`KeyTexts`].
pub(super) const KEY_TEXTS: [&str; 3] = ["label", "hint", "created_at"];

/// Values of [`KEY_TEXTS`].
pub(super) type KeyTexts = (Option<String>, Option<String>, Option<i64>);

/// Reads a key from texts and balances; `None` without balances, when the key does not exist.
pub(super) fn read_key(id: KeyId, texts: KeyTexts, spend: Option<&[u8]>) -> RedisResult<Option<ApiKey>> {
    let Some(spend) = spend else { return Ok(None) };
    let (Some(label), Some(hint), Some(created_at)) = texts else { return Err(damaged("a key")) };
    let created_at = Timestamp::from_millis(created_at);
    Ok(Some(ApiKey { id, label, hint, created_at, spend: read_spend(spend)? }))
}

/// Adds the texts of a management key to the arguments of a script.
pub(super) fn write_management_key(arguments: &mut Arguments, key: &ManagementKey) {
    let ManagementKey { id: _, name, hint, created_at, revoked_at } = key;
    let numbers =
        [("created_at", Some(created_at.millis())), ("revoked_at", revoked_at.map(Timestamp::millis))];
    write(arguments, [("name", name.as_str()), ("hint", hint.as_str())], numbers);
}

/// Reads a management key from its texts.
pub(super) fn read_management_key(
    id: ManagementKeyId,
    fields: &Fields,
) -> RedisResult<Option<ManagementKey>> {
    if fields.is_empty() {
        return Ok(None);
    }
    Ok(Some(ManagementKey {
        id,
        name: text(fields, "name")?,
        hint: text(fields, "hint")?,
        created_at: Timestamp::from_millis(required(fields, "created_at")?),
        revoked_at: number(fields, "revoked_at")?.map(Timestamp::from_millis),
    }))
}

/// Writes a member's texts and times.
pub(super) fn write_member(arguments: &mut Arguments, member: &Member) {
    let Member { id: _, name, role, password, created_at, last_link } = member;
    let texts = [("name", name.as_str()), ("role", role.as_str())];
    write(arguments, texts, [("created_at", Some(created_at.millis()))]);
    if let Some(PasswordHash(hash)) = password {
        arguments.value("password");
        arguments.value(hash.as_str());
    }
    if let Some(link) = last_link {
        write_last_link(arguments, link);
    }
}

/// Writes the last link that someone else made for a member.
pub(super) fn write_last_link(arguments: &mut Arguments, MadeLink { by, at }: &MadeLink) {
    let by = by.to_string();
    write(arguments, [("last_link_by", by.as_str())], [("last_link_at", Some(at.millis()))]);
}

fn read_last_link(fields: &Fields) -> RedisResult<Option<MadeLink>> {
    let Some(by) = fields.get("last_link_by") else { return Ok(None) };
    let by = LinkMaker::parse(by).ok_or_else(|| damaged("last_link_by"))?;
    Ok(Some(MadeLink { by, at: Timestamp::from_millis(required(fields, "last_link_at")?) }))
}

/// Reads a member from its texts; `None` without texts.
pub(super) fn read_member(id: MemberId, fields: &Fields) -> RedisResult<Option<Member>> {
    if fields.is_empty() {
        return Ok(None);
    }
    Ok(Some(Member {
        id,
        name: text(fields, "name")?,
        role: Role::parse(&text(fields, "role")?).ok_or_else(|| damaged("role"))?,
        password: fields.get("password").cloned().map(PasswordHash),
        created_at: Timestamp::from_millis(required(fields, "created_at")?),
        last_link: read_last_link(fields)?,
    }))
}

/// Writes a session's texts and times.
pub(super) fn write_session(arguments: &mut Arguments, session: &Session) {
    let Session { digest: _, id, member, agent, created_at, seen_at, expires_at, way } = session;
    let (id, member, way) = (id.to_string(), member.to_string(), way.to_string());
    let texts =
        [("id", id.as_str()), ("member", member.as_str()), ("agent", agent.as_str()), ("way", way.as_str())];
    let times = [("created_at", created_at), ("seen_at", seen_at), ("expires_at", expires_at)];
    write(arguments, texts, times.map(|(name, at)| (name, Some(at.millis()))));
}

/// Reads a session from its texts; `None` without texts.
pub(super) fn read_session(digest: Digest, fields: &Fields) -> RedisResult<Option<Session>> {
    if fields.is_empty() {
        return Ok(None);
    }
    let time = |name| required(fields, name).map(Timestamp::from_millis);
    // Sessions of an earlier version have no way.
    let way = fields.get("way").map_or(Some(SignInWay::Password), |way| SignInWay::parse(way));
    Ok(Some(Session {
        digest,
        id: text(fields, "id")?.parse().map_err(|_| damaged("a session's id"))?,
        member: text(fields, "member")?.parse().map_err(|_| damaged("a session's member"))?,
        agent: text(fields, "agent")?,
        created_at: time("created_at")?,
        seen_at: time("seen_at")?,
        expires_at: time("expires_at")?,
        way: way.ok_or_else(|| damaged("way"))?,
    }))
}

fn write<const T: usize, const N: usize>(
    arguments: &mut Arguments,
    texts: [(&str, &str); T],
    numbers: [(&str, Option<i64>); N],
) {
    for (name, text) in texts {
        arguments.value(name);
        arguments.value(text);
    }
    for (name, number) in numbers {
        if let Some(number) = number {
            arguments.value(name);
            arguments.value(number.to_string());
        }
    }
}

fn text(fields: &Fields, name: &'static str) -> RedisResult<String> {
    fields.get(name).cloned().ok_or_else(|| damaged(name))
}

fn number(fields: &Fields, name: &'static str) -> RedisResult<Option<i64>> {
    fields.get(name).map(|text| text.parse().map_err(|_| damaged(name))).transpose()
}

fn required(fields: &Fields, name: &'static str) -> RedisResult<i64> {
    number(fields, name)?.ok_or_else(|| damaged(name))
}

/// Error of a record that this program did not write.
pub(super) fn damaged(what: &str) -> RedisError {
    (ErrorKind::UnexpectedReturnType, "a record is damaged", what.to_owned()).into()
}
