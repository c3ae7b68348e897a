//! API keys and management keys.

use shared::{
    ids::{KeyId, ManagementKeyId},
    time::Timestamp,
};

use super::{
    Fields, budgets::read_spend, damaged, fields, number, read_metadata, required, text, write_metadata,
};
use crate::store::{ManagementKey, StoreError};
use domain::key::ApiKey;

/// Names and values of a key's texts. Metadata are written even where there are none, in place of earlier ones.
pub(in crate::store::redis) fn write_key(key: &ApiKey) -> Vec<String> {
    let ApiKey { id: _, label, hint, created_at, metadata, spend: _ } = key;
    fields([
        ("label", Some(label.clone())),
        ("hint", Some(hint.clone())),
        ("created_at", Some(created_at.millis().to_string())),
        ("metadata", write_metadata(metadata)),
    ])
}

/// Names of a key's texts, in the order of [`KeyTexts`].
pub(in crate::store::redis) const KEY_TEXTS: [&str; 4] = ["label", "hint", "created_at", "metadata"];

/// Values of [`KEY_TEXTS`].
pub(in crate::store::redis) type KeyTexts = (Option<String>, Option<String>, Option<i64>, Option<String>);

/// Reads a key from texts and the ledger's part; `None` without the latter, when the key does not exist.
pub(in crate::store::redis) fn read_key(
    id: KeyId,
    texts: KeyTexts,
    spend: Option<&[u8]>,
) -> Result<Option<ApiKey>, StoreError> {
    let Some(spend) = spend else { return Ok(None) };
    let (Some(label), Some(hint), Some(created_at), metadata) = texts else { return Err(damaged("a key")) };
    let created_at = Timestamp::from_millis(created_at);
    let metadata = read_metadata(metadata.as_deref())?;
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
