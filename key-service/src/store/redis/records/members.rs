//! Members with their expiring records.

use shared::{ids::MemberId, time::Timestamp};

use super::{Fields, damaged, fields, required, text};
use crate::store::{ExpiringRecord, RecordKind, StoreError};
use domain::{
    digest::Digest,
    member::{LinkMaker, MadeLink, Member, PasswordHash, Role},
    second_factor::SecondFactor,
};

/// Names and values of a member's texts.
pub(in crate::store::redis) fn write_member(member: &Member) -> Vec<String> {
    let Member { id: _, name, role, password, created_at, last_link, second_factor } = member;
    let mut texts = fields([
        ("name", Some(name.clone())),
        ("role", Some(role.as_str().to_owned())),
        ("created_at", Some(created_at.millis().to_string())),
        ("password", password.as_ref().map(|PasswordHash(hash)| hash.clone())),
        ("second_factor", second_factor.as_ref().map(SecondFactor::to_string)),
    ]);
    texts.extend(last_link.iter().flat_map(write_last_link));
    texts
}

/// Names and values of the last link that someone else made for a member.
pub(in crate::store::redis) fn write_last_link(MadeLink { by, at }: &MadeLink) -> Vec<String> {
    fields([("last_link_by", Some(by.to_string())), ("last_link_at", Some(at.millis().to_string()))])
}

fn read_last_link(fields: &Fields) -> Result<Option<MadeLink>, StoreError> {
    let Some(by) = fields.get("last_link_by") else { return Ok(None) };
    let by = LinkMaker::parse(by).ok_or_else(|| damaged("last_link_by"))?;
    Ok(Some(MadeLink { by, at: Timestamp::from_millis(required(fields, "last_link_at")?) }))
}

fn read_second_factor(stored: &str) -> Result<SecondFactor, StoreError> {
    SecondFactor::parse(stored).ok_or_else(|| damaged("second_factor"))
}

/// Reads a member from its texts; `None` without texts.
pub(in crate::store::redis) fn read_member(
    id: MemberId,
    fields: &Fields,
) -> Result<Option<Member>, StoreError> {
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
        second_factor: fields.get("second_factor").map(|stored| read_second_factor(stored)).transpose()?,
    }))
}

/// Stored form of an expiring record.
pub(in crate::store::redis) fn write_expiring(record: &ExpiringRecord) -> String {
    format!("{} {} {}", record.member, record.expires_at.millis(), record.value)
}

/// Reads the stored form of an expiring record.
pub(in crate::store::redis) fn read_expiring(
    kind: RecordKind,
    name: Digest,
    stored: &str,
) -> Result<ExpiringRecord, StoreError> {
    let read = || {
        let mut parts = stored.splitn(3, ' ');
        let (member, expires_at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (expires_at, value) = (Timestamp::from_millis(expires_at), parts.next()?.to_owned());
        Some(ExpiringRecord { kind, name, member, expires_at, value })
    };
    read().ok_or_else(|| damaged(kind.as_str()))
}
