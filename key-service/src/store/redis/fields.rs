//! The hashes that keys are kept in.

use std::collections::HashMap;

use redis::{ErrorKind, RedisError, RedisResult};
use shared::{
    ids::{KeyId, ManagementKeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::script::Arguments;
use crate::{
    domain::{key::ApiKey, ledger},
    store::ManagementKey,
};

/// A hash as it is read.
pub(super) type Fields = HashMap<String, String>;

/// Adds the fields of a key to the arguments of a script; what it does not have is left out.
pub(super) fn write_key(arguments: &mut Arguments, key: &ApiKey) {
    let ApiKey { id: _, label, hint, created_at, spend } = key;
    let ledger::Key { limit, used, held, expires_at, revoked_at, last_used_at } = spend;
    let optional = [
        ("limit", limit.map(NanoUsd::nanos)),
        ("used", Some(used.nanos())),
        ("held", Some(held.nanos())),
        ("created_at", Some(created_at.millis())),
        ("expires_at", expires_at.map(Timestamp::millis)),
        ("revoked_at", revoked_at.map(Timestamp::millis)),
        ("last_used_at", last_used_at.map(Timestamp::millis)),
    ];
    write(arguments, [("label", label), ("hint", hint)], optional);
}

/// A key from its hash; `None` from an empty one, as there is no such key.
pub(super) fn read_key(id: KeyId, fields: &Fields) -> RedisResult<Option<ApiKey>> {
    if fields.is_empty() {
        return Ok(None);
    }
    let spend = ledger::Key {
        limit: number(fields, "limit")?.map(NanoUsd::from_nanos),
        used: NanoUsd::from_nanos(required(fields, "used")?),
        held: NanoUsd::from_nanos(required(fields, "held")?),
        expires_at: number(fields, "expires_at")?.map(Timestamp::from_millis),
        revoked_at: number(fields, "revoked_at")?.map(Timestamp::from_millis),
        last_used_at: number(fields, "last_used_at")?.map(Timestamp::from_millis),
    };
    let created_at = Timestamp::from_millis(required(fields, "created_at")?);
    Ok(Some(ApiKey { id, label: text(fields, "label")?, hint: text(fields, "hint")?, created_at, spend }))
}

/// The same for a management key.
pub(super) fn write_management_key(arguments: &mut Arguments, key: &ManagementKey) {
    let ManagementKey { id: _, name, hint, created_at, revoked_at } = key;
    let numbers =
        [("created_at", Some(created_at.millis())), ("revoked_at", revoked_at.map(Timestamp::millis))];
    write(arguments, [("name", name), ("hint", hint)], numbers);
}

/// The same for a management key.
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

fn write<const N: usize>(
    arguments: &mut Arguments,
    texts: [(&str, &String); 2],
    numbers: [(&str, Option<i64>); N],
) {
    for (name, text) in texts {
        arguments.value(name);
        arguments.value(text.as_str());
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

/// Somebody else wrote what only we write.
pub(super) fn damaged(what: &str) -> RedisError {
    (ErrorKind::UnexpectedReturnType, "a record is damaged", what.to_owned()).into()
}
