//! Names of the spaces, sets and indexes in which records other than money are stored.

use domain::{digest::Digest, key::Status};
use records::{Index, Log, NameBytes, Space};
use shared::ids::{AccountId, GroupId, KeyId};

use crate::{
    names::record_name::RecordName,
    stored::{
        AccountClaim, AccountLabelsRecord, AccountName, AccountProfile, ExternalId, GroupProfile, KeyProfile,
    },
};

// Sets of records in the space of an account, each with the form of its records' names. Numbers 1 to 6 are for money.

/// Data other than money of the account (`a`), of a key (`k` and its id) and of a group (`g` and its id).
pub const PROFILES: u8 = 7;
/// Groups by the caller's own id.
pub const EXTERNAL_IDS: u8 = 8;
/// Idempotency keys, by their digests.
pub const IDEMPOTENCY: u8 = 9;
/// Management keys: the list (`l`), and each key (`k` and its id).
pub const MANAGEMENT_KEYS: u8 = 10;
/// Members: the list (`l`), each member (`m` and its id), and the id for each name (`n` and the name).
pub const MEMBERS: u8 = 11;
/// Sign-in links (`l` and the digest), sessions (`s` and the digest), and each member's current link (`m` and the
/// member's id).
pub const EXPIRING: u8 = 12;
/// Webhooks: the list (`l`), and each webhook (`w` and its id). Also the waiting deliveries (`p` and an id) and the
/// last attempts (`a` and an id) of each webhook and alert.
pub const WEBHOOKS: u8 = 13;
/// Deliveries: ids of the webhook or alert and of the event.
pub const DELIVERIES: u8 = 14;
/// Counts of refused calls, with the day as part: for all keys (`a`), and for each key (`k` and its id).
pub const REFUSED: u8 = 15;
/// The sets that housekeeping has dropped (`h`), the days with refused calls (`r`), the number of the last refused call
/// (`c`), and the restores from backups (`n`).
pub const HOUSE: u8 = 16;
/// Operator keys, in the operators' space: the list (`l`), and each (`k` and its id).
pub const OPERATOR_KEYS: u8 = 17;
/// Alerts: the list (`l`), each (`a` and its id), and the last test (`t`).
pub const ALERTS: u8 = 18;

// Sets of records in other spaces, with the names of these spaces.

/// Owners of credentials, by digest: spaces `credentials/…`.
pub const CREDENTIALS: u8 = 20;
/// Accounts by name: spaces `accounts/…`.
pub const ACCOUNT_NAMES: u8 = 21;
/// The account of each management key: spaces `management-keys/…`.
pub const MANAGEMENT_KEY_OWNERS: u8 = 22;
/// Accounts with open holds: spaces `holders/…`.
pub const HOLDERS: u8 = 23;
/// Accounts that have webhooks or alerts: spaces `webhooks/…`.
pub const WEBHOOK_ACCOUNTS: u8 = 24;
/// Counts of sign-in attempts: spaces `attempts/…`.
pub const ATTEMPTS: u8 = 25;
/// Records that exist once per installation, such as the record of peppers (`p`): space `installation`.
pub const INSTALLATION: u8 = 26;

/// Counts of recent bills by hour, for each model and upstream name: space `upstreams`.
pub const UPSTREAMS: u8 = 27;

/// Accounts by external id: spaces `account-external-ids/…`.
pub const ACCOUNT_EXTERNAL_IDS: u8 = 31;

// Indexes in the space of an account, each with the parts of an entry after the colon. Numbers 1 to 6 are for money.

/// All keys: id, label, a zero byte, hint.
pub const KEYS: Index = Index(7);
/// Keys by status: the status's letter and the id. An expired key stays among the active keys until active or expired
/// keys are listed.
pub const KEYS_BY_STATUS: Index = Index(8);
/// Active keys with an expiry: time, id.
pub const KEYS_EXPIRING: Index = Index(9);
/// Keys of groups: ids of the group and the key.
pub const KEYS_OF_GROUPS: Index = Index(10);
/// All groups of an account, by id.
pub const GROUPS: Index = Index(11);
/// Child groups: ids of the parent and the child.
pub const CHILD_GROUPS: Index = Index(12);
/// Idempotency keys by expiry: time, digest.
pub const IDEMPOTENCY_ENDS: Index = Index(13);
/// Links and sessions by expiry: time, name of the record.
pub const EXPIRING_ENDS: Index = Index(14);
/// Links and sessions by member: id of the member, name of the record.
pub const OF_MEMBERS: Index = Index(15);

// Logs in the space of an account. Numbers 1 and 2 belong to the ledger.

/// The most recent refused calls.
pub const REFUSED_CALLS: Log = Log(3);

// Indexes in spaces other than an account's.

/// Counts of attempts by expiry, in the spaces of [`ATTEMPTS`]: time, digest.
pub const ATTEMPT_ENDS: Index = Index(20);

/// Small records are spread over this many spaces, so that a Redis cluster distributes them.
const PARTS: u64 = 16;
/// Credentials are spread over this many spaces. With 100,000 keys, each space is a hash of about a hundred fields in
/// Redis.
const CREDENTIAL_PARTS: u64 = 1_024;

/// Names a record in a set that is not divided into parts.
pub fn name<T>(table: u8, key: impl Into<NameBytes>) -> RecordName<T> {
    RecordName::new(table, 0, key)
}

/// Names a record in a part of a set.
pub fn of_part<T>(table: u8, part: u32, key: impl Into<NameBytes>) -> RecordName<T> {
    RecordName::new(table, part, key)
}

/// Joins a letter and an id.
pub fn tagged(tag: u8, id: &[u8]) -> Vec<u8> {
    [&[tag], id].concat()
}

/// Names the record with an account's data other than money.
pub fn account_profile() -> RecordName<AccountProfile> {
    name(PROFILES, *b"a")
}

/// Names the record with what operators record of an account.
pub fn account_labels() -> RecordName<AccountLabelsRecord> {
    name(PROFILES, *b"o")
}

/// Names the record with a key's data other than money.
pub fn key_profile(id: KeyId) -> RecordName<KeyProfile> {
    name(PROFILES, tagged(b'k', id.as_bytes()))
}

/// Names the record with a group's data other than money.
pub fn group_profile(id: GroupId) -> RecordName<GroupProfile> {
    name(PROFILES, tagged(b'g', id.as_bytes()))
}

/// Encodes a time as the beginning of an entry, so that entries are sorted by time. Times before 1970 all come first.
pub fn time(at: shared::time::Timestamp) -> [u8; 8] {
    u64::try_from(at.millis()).unwrap_or_default().to_be_bytes()
}

/// Returns the smallest entry after all entries with this prefix; `None` if no entry can follow them.
pub fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return Some(end);
        }
    }
    None
}

/// Returns the space for the credential with this digest.
pub fn credentials(digest: &Digest) -> Space {
    let [first, second, ..] = *digest.as_bytes();
    Space::new(format!("credentials/{}", u64::from(u16::from_be_bytes([first, second])) % CREDENTIAL_PARTS))
}

/// Returns the space, among the spaces of this kind, that these bytes select.
pub fn part_of(kind: &str, bytes: &[u8]) -> Space {
    Space::new(format!("{kind}/{}", number_of_part(bytes)))
}

fn number_of_part(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| (31 * sum + u64::from(*byte)) % 65_521) % PARTS
}

/// Returns all spaces of a kind.
pub fn parts(kind: &str) -> impl Iterator<Item = Space> + use<'_> {
    (0..PARTS).map(move |part| Space::new(format!("{kind}/{part}")))
}

/// Returns the spaces that may list an account with open holds. The first space lists it; while the first is
/// unavailable, the next space does.
pub fn holders(account: AccountId) -> impl Iterator<Item = Space> {
    let first = number_of_part(account.as_bytes());
    (0..PARTS).map(move |step| Space::new(format!("holders/{}", (first + step) % PARTS)))
}

pub fn external_id(id: &str) -> RecordName<ExternalId> {
    name(EXTERNAL_IDS, id.as_bytes())
}

/// Returns the space and name of the record for an account's name.
pub fn account_name(of: &str) -> (Space, RecordName<AccountName>) {
    (part_of("accounts", of.as_bytes()), name(ACCOUNT_NAMES, of.as_bytes()))
}

/// Returns the space and name of the record for an account's external id.
pub fn account_external_id(of: &str) -> (Space, RecordName<AccountClaim>) {
    (part_of("account-external-ids", of.as_bytes()), name(ACCOUNT_EXTERNAL_IDS, of.as_bytes()))
}

/// Encodes the entry of [`KEYS`]. A label may contain a zero byte, but a hint cannot, because no plaintext does.
pub fn name_entry(key: KeyId, label: &str, hint: &str) -> Vec<u8> {
    [key.as_bytes(), label.as_bytes(), &[0], hint.as_bytes()].concat()
}

pub fn group_entry(group: GroupId, key: KeyId) -> Vec<u8> {
    [&group.as_bytes()[..], key.as_bytes()].concat()
}

pub fn status_entry(status: Status, key: KeyId) -> Vec<u8> {
    tagged(status_letter(status), key.as_bytes())
}

pub fn expiry_entry(at: shared::time::Timestamp, key: KeyId) -> Vec<u8> {
    [&time(at)[..], key.as_bytes()].concat()
}

pub const fn status_letter(status: Status) -> u8 {
    match status {
        Status::Active => b'a',
        Status::Disabled => b'd',
        Status::Expired => b'e',
        Status::Revoked => b'r',
    }
}
