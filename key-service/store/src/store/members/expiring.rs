//! Members' records that expire: sign-in links, sessions and muted alarms.
//!
//! A record is void if its member was removed or if it has expired. When new records are written, expired records are
//! gradually removed.

use std::time::Duration;

use domain::{
    digest::Digest,
    event::{Act, EventKind},
    member::Member,
};
use key_service_ledger::{
    Change, StoreError,
    names::RecordName,
    stored::{ExpiringValue, LatestLink},
    view::View,
};
use records::{Index, Order};
use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use crate::{
    data::{ExpiringRecord, RecordKind},
    store::{
        base::{Store, value},
        layout,
        members::member_records::{member_name, read_member},
    },
};

/// Maximum number of expired records that are removed when a new record is written, so that the commit stays short.
const MOST_EXPIRED: usize = 32;
/// Maximum number of records that are removed together with a member: more than a member usually has. The member's
/// other records are void, and expire later.
const MOST_VOIDED: usize = 64;
/// Maximum number of a member's records to read at a time.
const READ_AT_ONCE: usize = 200;
/// Length of the time that begins an entry of [`layout::EXPIRING_ENDS`].
const TIME_BYTES: usize = 8;
/// Length of the member's id that begins an entry of [`layout::OF_MEMBERS`].
const MEMBER_BYTES: usize = 16;

impl Store {
    /// Stores a record until it expires. Repeating this changes nothing. A link replaces the member's previous link.
    /// For a new session, a sign-in event is written.
    pub async fn put_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        act: &Act,
    ) -> Result<(), StoreError> {
        let space = layout::space(account);
        let to = Some(layout::time(act.at.plus(Duration::from_millis(1))).to_vec());
        let range = (Vec::new(), to);
        let ends =
            self.read().entries(&space, layout::EXPIRING_ENDS, range, Order::Ascending, MOST_EXPIRED).await?;
        match record.kind {
            RecordKind::Link | RecordKind::MutedAlarms => {
                let put = |view: &mut View| {
                    remove_expired(view, &ends, act.at);
                    put_new(view, &record).map(|_| ())
                };
                self.change(&space, put).await
            }
            RecordKind::Session => {
                let put = |change: &mut Change<'_>| {
                    remove_expired(change, &ends, act.at);
                    if put_new(change, &record)? {
                        let signed_in = EventKind::MemberSignedIn { member_id: record.member };
                        change.event(act.event(0, None, None, signed_in));
                    }
                    Ok(())
                };
                self.lanes.change(account, put).await
            }
        }
    }

    /// Finds a record that has not expired, with its member.
    pub async fn record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        let (space, of_record) = (layout::space(account), record_name(kind, &name));
        let Some(found) = self.read().get::<ExpiringValue>(&space, of_record.clone()).await? else {
            return Ok(None);
        };
        let id = found.member;
        // The record is read again together with the member, because another call may have taken it in the meantime.
        let found = self.read().records_of(&space, vec![of_record.into(), member_name(id).into()]).await?;
        let [Some(record), Some(member)] = &found[..] else { return Ok(None) };
        let record = read_record(kind, name, value(record)?);
        if record.expires_at <= now || record.member != id {
            return Ok(None);
        }
        Ok(Some((record, read_member(id, value(member)?))))
    }

    /// Finds a record like [`Self::record`], and removes it. Of several concurrent calls, only one gets the record.
    pub async fn take_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        let of_record = record_name(kind, &name);
        let take = |view: &mut View| {
            let Some(found) = view.get::<ExpiringValue>(&of_record)? else { return Ok(None) };
            remove(view, &of_record, &found);
            let record = read_record(kind, name, found);
            let Some(member) = view.get(&member_name(record.member))? else { return Ok(None) };
            if record.expires_at <= now {
                return Ok(None);
            }
            let member = read_member(record.member, member);
            Ok(Some((record, member)))
        };
        self.change(&layout::space(account), take).await
    }

    /// Replaces a record's value and expiry. If the record was removed, it stays removed.
    pub async fn replace_record(&self, account: AccountId, record: ExpiringRecord) -> Result<(), StoreError> {
        let of_record = record_name(record.kind, &record.name);
        let replace = |view: &mut View| {
            let Some(found) = view.get::<ExpiringValue>(&of_record)? else { return Ok(()) };
            let (expires_at, value) = (record.expires_at, record.value.clone());
            let next = ExpiringValue { member: found.member, expires_at, value };
            if next.expires_at != found.expires_at {
                view.leave(layout::EXPIRING_ENDS, end(&of_record, &found));
                view.enter(layout::EXPIRING_ENDS, end(&of_record, &next));
            }
            view.put(&of_record, next);
            Ok(())
        };
        self.note(&layout::space(account), replace).await
    }

    /// Lists the member's records that have not expired, in any order.
    pub async fn records(
        &self,
        account: AccountId,
        kind: RecordKind,
        member: MemberId,
        now: Timestamp,
    ) -> Result<Vec<ExpiringRecord>, StoreError> {
        let (space, prefix) = (layout::space(account), [&member.as_bytes()[..], &[tag(kind)]].concat());
        let (mut from, to) = (prefix.clone(), layout::behind(&prefix));
        let mut records = Vec::new();
        loop {
            let range = (from, to.clone());
            let entries = self
                .read()
                .entries(&space, layout::OF_MEMBERS, range, Order::Ascending, READ_AT_ONCE)
                .await?;
            let names = entries.iter().map(|entry| in_entry(entry, MEMBER_BYTES)).collect();
            let found = self.read().get_all::<ExpiringValue>(&space, names).await?;
            for (entry, found) in entries.iter().zip(found) {
                let Some(found) = found else { continue };
                let record = read_record(kind, digest(&entry[prefix.len()..])?, found);
                if record.expires_at > now && record.member == member {
                    records.push(record);
                }
            }
            match entries.into_iter().nth(READ_AT_ONCE - 1) {
                Some(last) => from = [&last[..], &[0]].concat(),
                None => return Ok(records),
            }
        }
    }

    /// Removes a record. Repeating this changes nothing.
    pub async fn remove_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
    ) -> Result<(), StoreError> {
        let of_record = record_name(kind, &name);
        let remove = |view: &mut View| {
            void(view, &of_record);
            Ok(())
        };
        self.change(&layout::space(account), remove).await
    }

    /// Lists the names of a member's records, but at most as many as are removed together with a member.
    pub(crate) async fn some_records_of(
        &self,
        account: AccountId,
        member: MemberId,
    ) -> Result<Vec<RecordName<ExpiringValue>>, StoreError> {
        let space = layout::space(account);
        let range = (member.as_bytes().to_vec(), layout::behind(member.as_bytes()));
        let entries =
            self.read().entries(&space, layout::OF_MEMBERS, range, Order::Ascending, MOST_VOIDED).await?;
        Ok(entries.iter().map(|entry| in_entry(entry, MEMBER_BYTES)).collect())
    }
}

/// Removes records of a member who is being removed.
pub(crate) fn void_all(view: &mut View, member: MemberId, records: &[RecordName<ExpiringValue>]) {
    for name in records {
        void(view, name);
    }
    view.remove(&latest_link(member));
}

/// Stores a record, unless it exists already. Returns whether it was stored.
fn put_new(view: &mut View, record: &ExpiringRecord) -> Result<bool, StoreError> {
    let ExpiringRecord { kind, name, member, expires_at, value } = record;
    let of_record = record_name(*kind, name);
    // Both records are requested before either is used, so that one round trip reads them.
    let (has_member, is_there) = (view.has(&member_name(*member)), view.has(&of_record));
    let is_link = *kind == RecordKind::Link;
    let latest = if is_link { view.get::<LatestLink>(&latest_link(*member))? } else { None };
    if !has_member {
        return Err(StoreError::Conflict(format!("there is no member {member}")));
    }
    if is_there {
        return Ok(false);
    }
    if let Some(latest) = latest {
        void(view, &record_name(*kind, &latest.digest));
    }
    if is_link {
        view.put(&latest_link(*member), LatestLink { digest: *name });
    }
    let record = ExpiringValue { member: *member, expires_at: *expires_at, value: value.clone() };
    for (index, entry) in entries_of(&of_record, &record) {
        view.enter(index, entry);
    }
    view.put(&of_record, record);
    Ok(true)
}

/// Removes the expired records of these entries. A record that cannot be read stays, so that it does not prevent
/// sign-ins.
fn remove_expired(view: &mut View, ends: &[Vec<u8>], now: Timestamp) {
    for entry in ends {
        let name = in_entry(entry, TIME_BYTES);
        match view.get::<ExpiringValue>(&name) {
            Ok(Some(record)) if record.expires_at <= now => remove(view, &name, &record),
            Ok(Some(_) | None) => view.leave(layout::EXPIRING_ENDS, entry.clone()),
            Err(_) => {}
        }
    }
}

/// Removes a record if it exists, whatever it contains. If it cannot be read, its index entries stay, but have no
/// effect.
fn void(view: &mut View, name: &RecordName<ExpiringValue>) {
    match view.get::<ExpiringValue>(name) {
        Ok(Some(record)) => remove(view, name, &record),
        Ok(None) => {}
        Err(_) => view.remove(name),
    }
}

/// Removes a record and its index entries.
fn remove(view: &mut View, name: &RecordName<ExpiringValue>, record: &ExpiringValue) {
    view.remove(name);
    for (index, entry) in entries_of(name, record) {
        view.leave(index, entry);
    }
}

/// Encodes a record's index entries.
fn entries_of(name: &RecordName<ExpiringValue>, record: &ExpiringValue) -> [(Index, Vec<u8>); 2] {
    let of_member = [&record.member.as_bytes()[..], &name.key].concat();
    [(layout::EXPIRING_ENDS, end(name, record)), (layout::OF_MEMBERS, of_member)]
}

/// Encodes a record's entry in [`layout::EXPIRING_ENDS`].
fn end(name: &RecordName<ExpiringValue>, record: &ExpiringValue) -> Vec<u8> {
    [&layout::time(record.expires_at)[..], &name.key].concat()
}

/// Returns the name of the record from an entry. The name begins after this many bytes.
fn in_entry(entry: &[u8], begins: usize) -> RecordName<ExpiringValue> {
    layout::name(layout::EXPIRING, entry.get(begins..).unwrap_or_default())
}

fn tag(kind: RecordKind) -> u8 {
    match kind {
        RecordKind::Link => b'l',
        RecordKind::Session => b's',
        RecordKind::MutedAlarms => b'a',
    }
}

fn record_name(kind: RecordKind, name: &Digest) -> RecordName<ExpiringValue> {
    layout::name(layout::EXPIRING, layout::tagged(tag(kind), name.as_bytes()))
}

/// Names the record of a member's current link.
fn latest_link(member: MemberId) -> RecordName<LatestLink> {
    layout::name(layout::EXPIRING, layout::tagged(b'm', member.as_bytes()))
}

fn digest(bytes: &[u8]) -> Result<Digest, StoreError> {
    let bytes = <[u8; 32]>::try_from(bytes);
    bytes.map(Digest::from_bytes).map_err(|_| StoreError::Damaged("the name of a record".into()))
}

fn read_record(kind: RecordKind, name: Digest, record: ExpiringValue) -> ExpiringRecord {
    let ExpiringValue { member, expires_at, value } = record;
    ExpiringRecord { kind, name, member, expires_at, value }
}

#[cfg(test)]
mod tests;
