//! API keys and management keys.

use shared::{
    ids::{KeyId, ManagementKeyId},
    time::Timestamp,
};

use super::{
    Fields, budgets::read_spend, damaged, fields, number, read_metadata, required, text, write_metadata,
};
use crate::store::{ManagementKey, StoreError};
use domain::{
    access::{Access, Scope},
    key::ApiKey,
};

/// Names and values of a new key's texts.
pub(in crate::store::redis) fn write_key(key: &ApiKey) -> Vec<String> {
    fields(key_texts(key))
}

/// Names and values of a changed key's texts: a text that is gone is written as empty.
pub(in crate::store::redis) fn write_changed_key(key: &ApiKey) -> Vec<String> {
    fields(key_texts(key).map(|(name, text)| (name, Some(text.unwrap_or_default()))))
}

fn key_texts(key: &ApiKey) -> [(&'static str, Option<String>); KEY_TEXTS.len()] {
    let ApiKey { id: _, label, hint, created_at, metadata, spend: _ } = key;
    [
        ("label", Some(label.clone())),
        ("hint", Some(hint.clone())),
        ("created_at", Some(created_at.millis().to_string())),
        ("metadata", write_metadata(metadata)),
    ]
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
    let ManagementKey { id: _, name, hint, access, created_at, expires_at, last_used_at, revoked_at } = key;
    let millis = |at: &Option<Timestamp>| at.map(|at| at.millis().to_string());
    fields([
        ("name", Some(name.clone())),
        ("hint", Some(hint.clone())),
        ("scope", Some(access.scope.as_str().to_owned())),
        ("group", access.group.map(|group| group.to_string())),
        ("created_at", Some(created_at.millis().to_string())),
        ("expires_at", millis(expires_at)),
        ("last_used_at", millis(last_used_at)),
        ("revoked_at", millis(revoked_at)),
    ])
}

/// Reads a management key from its texts. A key of an earlier version has no scope, and governs the account.
pub(in crate::store::redis) fn read_management_key(
    id: ManagementKeyId,
    fields: &Fields,
) -> Result<Option<ManagementKey>, StoreError> {
    if fields.is_empty() {
        return Ok(None);
    }
    let time = |name| Ok::<_, StoreError>(number(fields, name)?.map(Timestamp::from_millis));
    let scope = fields.get("scope").map(|scope| Scope::parse(scope).ok_or_else(|| damaged("scope")));
    let group = fields.get("group").map(|group| group.parse().map_err(|_| damaged("group")));
    Ok(Some(ManagementKey {
        id,
        name: text(fields, "name")?,
        hint: text(fields, "hint")?,
        access: Access { scope: scope.transpose()?.unwrap_or_default(), group: group.transpose()? },
        created_at: Timestamp::from_millis(required(fields, "created_at")?),
        expires_at: time("expires_at")?,
        last_used_at: time("last_used_at")?,
        revoked_at: time("revoked_at")?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_management_key_of_an_earlier_version_governs_the_account() {
        let id = ManagementKeyId::new(Timestamp::from_millis(0), [1; 10]);
        let mut fields: Fields = [("name", "Ops"), ("hint", "fg_mgmt_…"), ("created_at", "7")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let key = read_management_key(id, &fields).unwrap().unwrap();
        assert_eq!((key.access, key.expires_at), (Access { scope: Scope::Full, group: None }, None));
        for (name, value) in [("scope", "write"), ("group", "team")] {
            fields.insert(name.to_owned(), value.to_owned());
            assert!(read_management_key(id, &fields).is_err(), "{name} is not guessed");
            fields.remove(name);
        }
    }
}
