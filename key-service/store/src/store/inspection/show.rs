//! Shows the records of an account and its objects to an operator, without secrets.

use std::{collections::BTreeMap, str::FromStr};

use domain::{
    ledger::{Group, Key, Record as LedgerRecord},
    usage::{Counts, DayTotal, GroupDay, Margin, UserDay},
};
use key_service_ledger::{
    StoreError, names,
    stored::{
        AccountClaim, AccountLabelsRecord, AccountProfile, AccountRecord, Balance, DeliveryAttempts,
        EventsKept, ExpiringValue, ExternalId, GroupProfile, HolderRecord, House, IdList, KeyProfile,
        LatestLink, ManagementKeyOwner, ManagementKeyRecord, MemberName, MemberRecord, OperatorKeyRecord,
        PayersOfKey, PendingDeliveries, RefusedCalls, RefusedDay, RefusedDays, Restores, Told, Turn,
        WebhookRecord,
    },
};
use minicbor::Decode;
use records::{Answer, Name, Order, Question, Record, Set, Space};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use shared::ids::{
    AccountId, DepositId, GenerationId, GroupId, KeyId, ManagementKeyId, MemberId, OperatorKeyId, WebhookId,
};

use crate::store::{
    base::{Store, no_answer, value},
    layout,
    spending::holders::PARTS_TRIED,
};

/// Most links and sessions of a member, and days of a key's refused calls, that are shown: more than most have.
const MOST: usize = 100;

/// An object of an account that has records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownObject {
    Key(KeyId),
    Group(GroupId),
    Generation(GenerationId),
    Deposit(DepositId),
    ManagementKey(ManagementKeyId),
    Member(MemberId),
    Webhook(WebhookId),
}

/// A text that is not the id of an object with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be the id of a key (ak_…), a group (grp_…), a generation (gen_…), a deposit (dep_…), a management key (mk_…), a member \
     (mem_…) or a webhook (wh_…)"
)]
pub struct InvalidObject;

impl FromStr for ShownObject {
    type Err = InvalidObject;

    fn from_str(text: &str) -> Result<Self, InvalidObject> {
        let kinds = [
            text.parse().ok().map(Self::Key),
            text.parse().ok().map(Self::Group),
            text.parse().ok().map(Self::Generation),
            text.parse().ok().map(Self::Deposit),
            text.parse().ok().map(Self::ManagementKey),
            text.parse().ok().map(Self::Member),
            text.parse().ok().map(Self::Webhook),
        ];
        kinds.into_iter().flatten().next().ok_or(InvalidObject)
    }
}

/// A record, in readable form.
#[derive(Clone, Debug, Serialize)]
pub struct ShownRecord {
    /// The set under its name in the store, with the part if the set has parts.
    pub set: String,
    /// Name in the set: text, a letter and a hexadecimal id, or hexadecimal digits.
    pub name: String,
    /// Commit that wrote the record last; null if it cannot be read.
    pub revision: Option<String>,
    /// The value; `{"damaged": …}` with the number of its bytes if it cannot be read.
    pub record: Box<RawValue>,
}

impl Store {
    /// Reads the records of the account itself or of one of its objects. Empty if the account has nothing with this id.
    pub async fn show(
        &self,
        account: AccountId,
        object: Option<ShownObject>,
    ) -> Result<Vec<ShownRecord>, StoreError> {
        let mut shown = Vec::new();
        for (space, name) in self.places_of(account, object).await? {
            shown.extend(self.show_record(&space, &name).await?);
        }
        Ok(shown)
    }

    /// Lists spaces and names of the records, including those that may be absent.
    async fn places_of(
        &self,
        account: AccountId,
        object: Option<ShownObject>,
    ) -> Result<Vec<(Space, Name)>, StoreError> {
        let space = layout::space(account);
        let mut others = Vec::new();
        let own = match object {
            None => {
                let lists = [layout::MANAGEMENT_KEYS, layout::MEMBERS, layout::WEBHOOKS];
                let mut own =
                    vec![names::account(), names::events(), names::turn(), layout::account_profile()];
                own.push(layout::account_labels());
                let house = |of: &[u8; 1]| layout::name(layout::HOUSE, *of);
                own.extend([names::house(), house(b"r"), house(b"c"), house(b"n")]);
                own.extend(lists.map(|table| layout::name(table, *b"l")));
                let listing = layout::name(layout::HOLDERS, *account.as_bytes());
                others.extend(layout::holders(account).take(PARTS_TRIED).map(|part| (part, listing.clone())));
                own
            }
            Some(ShownObject::Key(id)) => {
                let mut own = vec![names::key(id), layout::key_profile(id)];
                let days = layout::name(layout::HOUSE, *b"r");
                let days = self.read_sound::<RefusedDays>(&space, days).await?.unwrap_or_default().days;
                let of_day =
                    |day: u32| layout::of_part(layout::REFUSED, day, layout::tagged(b'k', id.as_bytes()));
                own.extend(days.into_iter().rev().take(MOST).map(of_day));
                own
            }
            Some(ShownObject::Group(id)) => {
                let profile = layout::group_profile(id);
                let found = self.read_sound::<GroupProfile>(&space, profile.clone()).await?;
                let mut own = vec![names::group(id), profile];
                let external_id = found.and_then(|profile| profile.external_id);
                own.extend(external_id.map(|id| layout::name(layout::EXTERNAL_IDS, id.as_bytes())));
                own
            }
            Some(ShownObject::Generation(id)) => vec![names::generation(id), names::expired(id)],
            Some(ShownObject::Deposit(id)) => vec![names::deposit(id)],
            Some(ShownObject::ManagementKey(id)) => {
                let owners = layout::part_of("management-keys", id.as_bytes());
                others.push((owners, layout::name(layout::MANAGEMENT_KEY_OWNERS, *id.as_bytes())));
                vec![layout::name(layout::MANAGEMENT_KEYS, layout::tagged(b'k', id.as_bytes()))]
            }
            Some(ShownObject::Member(id)) => self.of_member(&space, id).await?,
            Some(ShownObject::Webhook(id)) => {
                let of_kind = |kind| layout::name(layout::WEBHOOKS, layout::tagged(kind, id.as_bytes()));
                [b'w', b'p', b'a'].map(of_kind).to_vec()
            }
        };
        Ok(own.into_iter().map(|name| (space.clone(), name)).chain(others).collect())
    }

    /// Names of the records of a member.
    async fn of_member(&self, space: &Space, id: MemberId) -> Result<Vec<Name>, StoreError> {
        let of_id = |table| layout::name(table, layout::tagged(b'm', id.as_bytes()));
        let mut own = vec![of_id(layout::MEMBERS)];
        let member = self.read_sound::<MemberRecord>(space, of_id(layout::MEMBERS)).await?;
        let named = member.map(|member| layout::tagged(b'n', member.name.as_bytes()));
        own.extend(named.map(|named| layout::name(layout::MEMBERS, named)));
        own.push(of_id(layout::EXPIRING));
        let range = (id.as_bytes().to_vec(), layout::behind(id.as_bytes()));
        let entries = self.read().entries(space, layout::OF_MEMBERS, range, Order::Ascending, MOST).await?;
        let in_entry = |entry: &Vec<u8>| layout::name(layout::EXPIRING, entry.get(16..).unwrap_or_default());
        own.extend(entries.iter().map(in_entry));
        Ok(own)
    }

    /// A record that may be absent or damaged.
    async fn read_sound<T: for<'b> Decode<'b, ()>>(
        &self,
        space: &Space,
        name: Name,
    ) -> Result<Option<T>, StoreError> {
        self.read().get(space, name).await.or_else(|error| match error {
            StoreError::Damaged(_) => Ok(None),
            StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Conflict(_) => Err(error),
        })
    }

    async fn show_record(&self, space: &Space, name: &Name) -> Result<Option<ShownRecord>, StoreError> {
        let answers = match self.read().ask(space, vec![Question::Records(vec![name.clone()])]).await {
            Ok(answers) => answers,
            Err(StoreError::Damaged(_)) => return Ok(Some(shown(name, None))),
            Err(error) => return Err(error),
        };
        let [Answer::Records(found)] = answers.as_slice() else { return Err(no_answer()) };
        Ok(found.iter().flatten().next().map(|record| shown(name, Some(record))))
    }
}

pub(crate) fn shown(name: &Name, record: Option<&Record>) -> ShownRecord {
    let Set { table, part } = name.set;
    let set = set_name(table);
    ShownRecord {
        set: if has_parts(table) { format!("{set}/{part}") } else { set.to_owned() },
        name: name_text(name),
        revision: record.map(|record| hex::encode(record.revision().0)),
        record: record.and_then(|record| read(table, &name.key, record)).unwrap_or_else(|| damaged(record)),
    }
}

/// What is shown of a record that cannot be read.
#[expect(clippy::expect_used, reason = "an optional number is JSON")]
fn damaged(record: Option<&Record>) -> Box<RawValue> {
    let damaged = BTreeMap::from([("damaged", record.map(|record| record.message().len()))]);
    to_raw_value(&damaged).expect("an optional number is JSON")
}

fn has_parts(table: u8) -> bool {
    let of_times = [names::GENERATIONS, names::EXPIRED, layout::REFUSED];
    of_times.contains(&table) || names::SETS_OF_DAYS.contains(&table)
}

/// The name of a set in the store.
fn set_name(table: u8) -> &'static str {
    match table {
        names::MONEY => "money",
        names::GENERATIONS => "generations",
        names::EXPIRED => "expired",
        names::DEPOSITS => "deposits",
        names::SUMS => "sums",
        names::SPEND => "spend",
        names::GROUP_SPEND => "group_spend",
        names::USERS => "users",
        names::PAYERS => "payers",
        names::TOLD => "told",
        layout::PROFILES => "profiles",
        layout::EXTERNAL_IDS => "external_ids",
        layout::IDEMPOTENCY => "idempotency",
        layout::MANAGEMENT_KEYS => "management keys",
        layout::MEMBERS => "members",
        layout::EXPIRING => "expiring",
        layout::WEBHOOKS => "webhooks",
        layout::DELIVERIES => "deliveries",
        layout::REFUSED => "refused",
        layout::HOUSE => "house",
        layout::OPERATOR_KEYS => "operator keys",
        layout::ACCOUNT_EXTERNAL_IDS => "account external ids",
        layout::MANAGEMENT_KEY_OWNERS => "management key owners",
        layout::HOLDERS => "holders",
        _ => "unknown",
    }
}

/// Returns the name of a record. A link's or session's name is a digest of its secret, so it is hidden.
fn name_text(Name { set, key }: &Name) -> String {
    match (set.table, &key[..]) {
        (layout::EXPIRING, [tag @ (b'l' | b's'), _, ..]) => format!("{}hidden", char::from(*tag)),
        (layout::EXTERNAL_IDS, text) | (layout::MEMBERS, text @ [b'n', ..]) => {
            String::from_utf8_lossy(text).into_owned()
        }
        (_, [tag, id @ ..]) if tag.is_ascii_lowercase() && (id.is_empty() || id.len() == 16) => {
            format!("{}{}", char::from(*tag), hex::encode(id))
        }
        (_, bytes) => hex::encode(bytes),
    }
}

/// The value of a record in a set of the account.
fn read(table: u8, key: &[u8], record: &Record) -> Option<Box<RawValue>> {
    match (table, key.first()?) {
        (names::MONEY, b'a') => json_of::<AccountRecord>(record),
        (names::MONEY, b'e') => json_of::<EventsKept>(record),
        (names::MONEY, b't') => json_of::<Turn>(record),
        (names::MONEY, b'k') => json_of::<Balance<Key>>(record),
        (names::MONEY, b'g') => json_of::<Balance<Group>>(record),
        (names::GENERATIONS | names::EXPIRED | names::DEPOSITS, _) => json_of::<LedgerRecord>(record),
        (layout::PROFILES, b'a') => json_of::<AccountProfile>(record),
        (layout::PROFILES, b'o') => json_of::<AccountLabelsRecord>(record),
        (layout::PROFILES, b'k') => json_of::<KeyProfile>(record),
        (layout::PROFILES, b'g') => json_of::<GroupProfile>(record),
        (layout::EXTERNAL_IDS, _) => json_of::<ExternalId>(record),
        (layout::MANAGEMENT_KEYS, b'l') => json_of::<IdList<ManagementKeyId>>(record),
        (layout::MEMBERS, b'l') => json_of::<IdList<MemberId>>(record),
        (layout::WEBHOOKS, b'l') => json_of::<IdList<WebhookId>>(record),
        (layout::MANAGEMENT_KEYS, b'k') => json_of::<ManagementKeyRecord>(record),
        (layout::OPERATOR_KEYS, b'l') => json_of::<IdList<OperatorKeyId>>(record),
        (layout::OPERATOR_KEYS, b'k') => json_of::<OperatorKeyRecord>(record),
        (layout::ACCOUNT_EXTERNAL_IDS, _) => json_of::<AccountClaim>(record),
        (layout::MANAGEMENT_KEY_OWNERS, _) => json_of::<ManagementKeyOwner>(record),
        (names::SUMS, _) => json_of::<Balance<DayTotal<Counts>>>(record),
        (names::SPEND, _) => json_of::<Balance<DayTotal<Margin>>>(record),
        (names::GROUP_SPEND, _) => json_of::<Balance<GroupDay>>(record),
        (names::USERS, _) => json_of::<Balance<UserDay>>(record),
        (names::PAYERS, _) => json_of::<PayersOfKey>(record),
        (names::TOLD, _) => json_of::<Told>(record),
        (layout::MEMBERS, b'm') => json_of::<MemberRecord>(record),
        (layout::MEMBERS, b'n') => json_of::<MemberName>(record),
        (layout::EXPIRING, b'm') => json_of::<LatestLink>(record),
        (layout::EXPIRING, _) => json_of::<ExpiringValue>(record),
        (layout::WEBHOOKS, b'w') => json_of::<WebhookRecord>(record),
        (layout::WEBHOOKS, b'p') => json_of::<PendingDeliveries>(record),
        (layout::WEBHOOKS, b'a') => json_of::<DeliveryAttempts>(record),
        (layout::REFUSED, _) => json_of::<RefusedDay>(record),
        (layout::HOUSE, b'h') => json_of::<House>(record),
        (layout::HOUSE, b'r') => json_of::<RefusedDays>(record),
        (layout::HOUSE, b'c') => json_of::<RefusedCalls>(record),
        (layout::HOUSE, b'n') => json_of::<Restores>(record),
        (layout::HOLDERS, _) => json_of::<HolderRecord>(record),
        _ => None,
    }
}

fn json_of<'b, T: Decode<'b, ()> + Serialize>(record: &'b Record) -> Option<Box<RawValue>> {
    to_raw_value(&value::<T>(record).ok()?).ok()
}
