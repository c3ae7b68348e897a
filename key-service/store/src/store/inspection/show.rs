//! Shows the records of an account and its objects to an operator, without secrets.

use std::{collections::BTreeMap, str::FromStr};

use domain::{
    ledger::{Group, Key, Record as LedgerRecord},
    usage::{Counts, DayTotal, GroupDay, Margin, UserDay},
};
use key_service_ledger::{
    StoreError,
    names::{self, RecordName},
    stored::{
        AccountClaim, AccountLabelsRecord, AccountProfile, AccountRecord, AlertRecord, Balance,
        DeliveryAttempts, EventsKept, ExpiringValue, ExternalId, GroupProfile, HolderRecord, House, IdList,
        KeyProfile, LastAlertTest, LatestLink, ManagementKeyOwner, ManagementKeyRecord, MemberName,
        MemberRecord, OperatorKeyRecord, PayersOfKey, PendingDeliveries, RefusedCalls, RefusedDay,
        RefusedDays, Restores, Told, Turn, WebhookRecord,
    },
};
use minicbor::Decode;
use records::{Answer, Name, NameBytes, Order, Question, Record, Set, Space};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use shared::ids::{
    AccountId, AlertId, DepositId, GenerationId, GroupId, KeyId, ManagementKeyId, MemberId, OperatorKeyId,
    WebhookId,
};

use crate::store::{
    base::{Store, no_answer, value},
    layout,
    members::member_records::{member_name, name_name},
    spending::holders::PARTS_TRIED,
};

/// Maximum number of links and sessions that are shown for a member, and of days for which a key's refused calls are
/// shown: more than most members and keys have.
const MOST: usize = 100;

/// An object whose records can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownObject {
    Key(KeyId),
    Group(GroupId),
    Generation(GenerationId),
    Deposit(DepositId),
    ManagementKey(ManagementKeyId),
    Member(MemberId),
    Webhook(WebhookId),
    Alert(AlertId),
}

/// The error for a text that is not the id of an object with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be the id of a key (ak_…), a group (grp_…), a generation (gen_…), a deposit (dep_…), a management key (mk_…), a member \
     (mem_…), a webhook (wh_…) or an alert (alr_…)"
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
            text.parse().ok().map(Self::Alert),
        ];
        kinds.into_iter().flatten().next().ok_or(InvalidObject)
    }
}

/// A record in readable form.
#[derive(Clone, Debug, Serialize)]
pub struct ShownRecord {
    /// Name of the set, with the number of the part if the set is divided into parts.
    pub set: String,
    /// Name of the record in the set: either text, or a letter and a hexadecimal id, or hexadecimal digits.
    pub name: String,
    /// Revision of the record, which identifies the commit that last wrote it; null if the record cannot be read.
    pub revision: Option<String>,
    /// The value of the record. If it cannot be read, `{"damaged": …}` with the number of its bytes.
    pub record: Box<RawValue>,
}

impl Store {
    /// Reads the records of the account or of one of its objects. The list is empty if the account has nothing with
    /// this id.
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

    /// Lists the spaces and names of the records, including records that may not exist.
    async fn places_of(
        &self,
        account: AccountId,
        object: Option<ShownObject>,
    ) -> Result<Vec<(Space, Name)>, StoreError> {
        let space = layout::space(account);
        let mut others = Vec::new();
        let own = match object {
            None => {
                let lists = [layout::MANAGEMENT_KEYS, layout::MEMBERS, layout::WEBHOOKS, layout::ALERTS];
                let mut own = vec![
                    names::account().into(),
                    names::events().into(),
                    names::turn().into(),
                    layout::account_profile().into(),
                    layout::account_labels().into(),
                ];
                own.extend([*b"h", *b"r", *b"c", *b"n"].map(|of| named(layout::HOUSE, of)));
                own.extend(lists.map(|table| named(table, *b"l")));
                own.push(named(layout::ALERTS, *b"t"));
                let listing = named(layout::HOLDERS, *account.as_bytes());
                others.extend(layout::holders(account).take(PARTS_TRIED).map(|part| (part, listing.clone())));
                own
            }
            Some(ShownObject::Key(id)) => {
                let mut own = vec![names::key(id).into(), layout::key_profile(id).into()];
                let days = layout::name::<RefusedDays>(layout::HOUSE, *b"r");
                let days = self.read_sound(&space, days).await?.unwrap_or_default().days;
                let of_day = |day: u32| Name {
                    set: Set { table: layout::REFUSED, part: day },
                    key: layout::tagged(b'k', id.as_bytes()).into(),
                };
                own.extend(days.into_iter().rev().take(MOST).map(of_day));
                own
            }
            Some(ShownObject::Group(id)) => {
                let profile = layout::group_profile(id);
                let found = self.read_sound(&space, profile.clone()).await?;
                let mut own = vec![names::group(id).into(), profile.into()];
                let external_id = found.and_then(|profile| profile.external_id);
                own.extend(external_id.map(|id| Name::from(layout::external_id(&id))));
                own
            }
            Some(ShownObject::Generation(id)) => {
                vec![names::generation(id).into(), names::expired(id).into()]
            }
            Some(ShownObject::Deposit(id)) => vec![names::deposit(id).into()],
            Some(ShownObject::ManagementKey(id)) => {
                let owners = layout::part_of("management-keys", id.as_bytes());
                others.push((owners, named(layout::MANAGEMENT_KEY_OWNERS, *id.as_bytes())));
                vec![named(layout::MANAGEMENT_KEYS, layout::tagged(b'k', id.as_bytes()))]
            }
            Some(ShownObject::Member(id)) => self.of_member(&space, id).await?,
            Some(ShownObject::Webhook(id)) => {
                let of_kind = |kind| named(layout::WEBHOOKS, layout::tagged(kind, id.as_bytes()));
                [b'w', b'p', b'a'].map(of_kind).to_vec()
            }
            Some(ShownObject::Alert(id)) => {
                let queue = |kind| named(layout::WEBHOOKS, layout::tagged(kind, id.as_bytes()));
                let own = named(layout::ALERTS, layout::tagged(b'a', id.as_bytes()));
                vec![own, queue(b'p'), queue(b'a')]
            }
        };
        Ok(own.into_iter().map(|name| (space.clone(), name)).chain(others).collect())
    }

    /// Lists the names of a member's records.
    async fn of_member(&self, space: &Space, id: MemberId) -> Result<Vec<Name>, StoreError> {
        let mut own = vec![member_name(id).into()];
        let member = self.read_sound(space, member_name(id)).await?;
        own.extend(member.map(|member| Name::from(name_name(&member.name))));
        own.push(named(layout::EXPIRING, layout::tagged(b'm', id.as_bytes())));
        let range = (id.as_bytes().to_vec(), layout::behind(id.as_bytes()));
        let entries = self.read().entries(space, layout::OF_MEMBERS, range, Order::Ascending, MOST).await?;
        let in_entry = |entry: &Vec<u8>| named(layout::EXPIRING, entry.get(16..).unwrap_or_default());
        own.extend(entries.iter().map(in_entry));
        Ok(own)
    }

    /// Reads a record; `None` if it does not exist or is damaged.
    async fn read_sound<T: for<'b> Decode<'b, ()>>(
        &self,
        space: &Space,
        name: RecordName<T>,
    ) -> Result<Option<T>, StoreError> {
        self.read().get(space, name).await.or_else(|error| match error {
            StoreError::Damaged(_) => Ok(None),
            StoreError::Unavailable(_) | StoreError::Busy(_) | StoreError::Full | StoreError::Conflict(_) => {
                Err(error)
            }
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
    let (set, read) = kind(table, &name.key);
    ShownRecord {
        set: if has_parts(table) { format!("{set}/{part}") } else { set.to_owned() },
        name: name_text(name),
        revision: record.map(|record| hex::encode(record.revision().0)),
        record: record.and_then(read).unwrap_or_else(|| damaged(record)),
    }
}

/// Returns what to show in place of a record that cannot be read.
#[expect(clippy::expect_used, reason = "an optional number is JSON")]
fn damaged(record: Option<&Record>) -> Box<RawValue> {
    let damaged = BTreeMap::from([("damaged", record.map(|record| record.message().len()))]);
    to_raw_value(&damaged).expect("an optional number is JSON")
}

fn has_parts(table: u8) -> bool {
    let of_times = [names::GENERATIONS, names::EXPIRED, layout::REFUSED];
    of_times.contains(&table) || names::SETS_OF_DAYS.contains(&table)
}

/// Returns the name of a record. The name of a link or a session is a digest of its secret, so the names of expiring
/// records are hidden.
fn name_text(Name { set, key }: &Name) -> String {
    match (set.table, &key[..]) {
        (layout::EXPIRING, [tag @ (b'l' | b's' | b'a'), _, ..]) => format!("{}hidden", char::from(*tag)),
        (layout::EXTERNAL_IDS, text) | (layout::MEMBERS, text @ [b'n', ..]) => {
            String::from_utf8_lossy(text).into_owned()
        }
        (_, [tag, id @ ..]) if tag.is_ascii_lowercase() && (id.is_empty() || id.len() == 16) => {
            format!("{}{}", char::from(*tag), hex::encode(id))
        }
        (_, bytes) => hex::encode(bytes),
    }
}

/// Names a record in a set that is not divided into parts.
fn named(table: u8, key: impl Into<NameBytes>) -> Name {
    Name { set: Set { table, part: 0 }, key: key.into() }
}

/// Reads a value and shows it as JSON.
type ReadValue = fn(&Record) -> Option<Box<RawValue>>;

/// Returns the name of a record's set, and the function that reads its value.
fn kind(table: u8, key: &[u8]) -> (&'static str, ReadValue) {
    match (table, key.first()) {
        (names::MONEY, Some(b'a')) => ("money", json_of::<AccountRecord>),
        (names::MONEY, Some(b'e')) => ("money", json_of::<EventsKept>),
        (names::MONEY, Some(b't')) => ("money", json_of::<Turn>),
        (names::MONEY, Some(b'k')) => ("money", json_of::<Balance<Key>>),
        (names::MONEY, Some(b'g')) => ("money", json_of::<Balance<Group>>),
        (names::GENERATIONS, _) => ("generations", json_of::<LedgerRecord>),
        (names::EXPIRED, _) => ("expired", json_of::<LedgerRecord>),
        (names::DEPOSITS, _) => ("deposits", json_of::<LedgerRecord>),
        (layout::PROFILES, Some(b'a')) => ("profiles", json_of::<AccountProfile>),
        (layout::PROFILES, Some(b'o')) => ("profiles", json_of::<AccountLabelsRecord>),
        (layout::PROFILES, Some(b'k')) => ("profiles", json_of::<KeyProfile>),
        (layout::PROFILES, Some(b'g')) => ("profiles", json_of::<GroupProfile>),
        (layout::EXTERNAL_IDS, _) => ("external_ids", json_of::<ExternalId>),
        (layout::MANAGEMENT_KEYS, Some(b'l')) => ("management keys", json_of::<IdList<ManagementKeyId>>),
        (layout::MEMBERS, Some(b'l')) => ("members", json_of::<IdList<MemberId>>),
        (layout::WEBHOOKS, Some(b'l')) => ("webhooks", json_of::<IdList<WebhookId>>),
        (layout::ALERTS, Some(b'l')) => ("alerts", json_of::<IdList<AlertId>>),
        (layout::ALERTS, Some(b'a')) => ("alerts", json_of::<AlertRecord>),
        (layout::ALERTS, Some(b't')) => ("alerts", json_of::<LastAlertTest>),
        (layout::MANAGEMENT_KEYS, Some(b'k')) => ("management keys", json_of::<ManagementKeyRecord>),
        (layout::OPERATOR_KEYS, Some(b'l')) => ("operator keys", json_of::<IdList<OperatorKeyId>>),
        (layout::OPERATOR_KEYS, Some(b'k')) => ("operator keys", json_of::<OperatorKeyRecord>),
        (layout::ACCOUNT_EXTERNAL_IDS, _) => ("account external ids", json_of::<AccountClaim>),
        (layout::MANAGEMENT_KEY_OWNERS, _) => ("management key owners", json_of::<ManagementKeyOwner>),
        (names::SUMS, _) => ("sums", json_of::<Balance<DayTotal<Counts>>>),
        (names::SPEND, _) => ("spend", json_of::<Balance<DayTotal<Margin>>>),
        (names::GROUP_SPEND, _) => ("group_spend", json_of::<Balance<GroupDay>>),
        (names::USERS, _) => ("users", json_of::<Balance<UserDay>>),
        (names::PAYERS, _) => ("payers", json_of::<PayersOfKey>),
        (names::TOLD, _) => ("told", json_of::<Told>),
        (layout::MEMBERS, Some(b'm')) => ("members", json_of::<MemberRecord>),
        (layout::MEMBERS, Some(b'n')) => ("members", json_of::<MemberName>),
        (layout::EXPIRING, Some(b'm')) => ("expiring", json_of::<LatestLink>),
        (layout::EXPIRING, _) => ("expiring", json_of::<ExpiringValue>),
        (layout::WEBHOOKS, Some(b'w')) => ("webhooks", json_of::<WebhookRecord>),
        (layout::WEBHOOKS, Some(b'p')) => ("webhooks", json_of::<PendingDeliveries>),
        (layout::WEBHOOKS, Some(b'a')) => ("webhooks", json_of::<DeliveryAttempts>),
        (layout::REFUSED, _) => ("refused", json_of::<RefusedDay>),
        (layout::HOUSE, Some(b'h')) => ("house", json_of::<House>),
        (layout::HOUSE, Some(b'r')) => ("house", json_of::<RefusedDays>),
        (layout::HOUSE, Some(b'c')) => ("house", json_of::<RefusedCalls>),
        (layout::HOUSE, Some(b'n')) => ("house", json_of::<Restores>),
        (layout::HOLDERS, _) => ("holders", json_of::<HolderRecord>),
        (layout::IDEMPOTENCY, _) => ("idempotency", |_| None),
        (layout::DELIVERIES, _) => ("deliveries", |_| None),
        _ => ("unknown", |_| None),
    }
}

fn json_of<T: for<'b> Decode<'b, ()> + Serialize>(record: &Record) -> Option<Box<RawValue>> {
    to_raw_value(&value::<T>(record).ok()?).ok()
}
