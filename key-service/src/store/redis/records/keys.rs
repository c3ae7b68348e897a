//! API keys and management keys.

use shared::{
    ids::{KeyId, ManagementKeyId},
    money::NanoUsd,
    time::Timestamp,
};

use super::{CARRY, Fields, Reader, amount, damaged, double, fields, number, optional, required, text};
use crate::store::{ManagementKey, StoreError};
use domain::{key::ApiKey, ledger};

/// Writes the ledger's part of a key, as a field of the account's hash.
pub(in crate::store::redis) fn write_spend(key: &ledger::Key) -> Vec<u8> {
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
pub(in crate::store::redis) fn read_spend(record: &[u8]) -> Result<ledger::Key, StoreError> {
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

/// Names and values of a key's texts.
pub(in crate::store::redis) fn write_key(key: &ApiKey) -> Vec<String> {
    let ApiKey { id: _, label, hint, created_at, metadata: _, spend: _ } = key;
    fields([
        ("label", Some(label.clone())),
        ("hint", Some(hint.clone())),
        ("created_at", Some(created_at.millis().to_string())),
    ])
}

/// Names of a key's texts, in the order of [`KeyTexts`].
pub(in crate::store::redis) const KEY_TEXTS: [&str; 3] = ["label", "hint", "created_at"];

/// Values of [`KEY_TEXTS`].
pub(in crate::store::redis) type KeyTexts = (Option<String>, Option<String>, Option<i64>);

/// Reads a key from texts and balances; `None` without balances, when the key does not exist.
pub(in crate::store::redis) fn read_key(
    id: KeyId,
    texts: KeyTexts,
    spend: Option<&[u8]>,
) -> Result<Option<ApiKey>, StoreError> {
    let Some(spend) = spend else { return Ok(None) };
    let (Some(label), Some(hint), Some(created_at)) = texts else { return Err(damaged("a key")) };
    let created_at = Timestamp::from_millis(created_at);
    let metadata = domain::settings::Metadata::new();
    Ok(Some(ApiKey { id, label, hint, created_at, metadata, spend: read_spend(spend)? }))
}

/// Names and values of a management key's texts.
pub(in crate::store::redis) fn write_management_key(key: &ManagementKey) -> Vec<String> {
    let ManagementKey { id: _, name, hint, created_at, revoked_at } = key;
    fields([
        ("name", Some(name.clone())),
        ("hint", Some(hint.clone())),
        ("created_at", Some(created_at.millis().to_string())),
        ("revoked_at", revoked_at.map(|at| at.millis().to_string())),
    ])
}

/// Reads a management key from its texts.
pub(in crate::store::redis) fn read_management_key(
    id: ManagementKeyId,
    fields: &Fields,
) -> Result<Option<ManagementKey>, StoreError> {
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
