//! Groups of API keys, as texts.

use shared::{ids::GroupId, money::NanoUsd, time::Timestamp};

use super::{
    Fields, amount, budgets::read_group_spend, damaged, read_metadata, required, text, write_metadata,
};
use crate::store::{StoreError, records};
use domain::{
    group::{Group, KeyDefaults},
    ledger::Budget,
};

/// Names and values of a group's texts. Absent values are written as well, in place of earlier ones.
pub(in crate::store::redis) fn write_group(group: &Group) -> Vec<String> {
    let Group { id: _, name, external_id, metadata, key_defaults, created_at, keys: _, spend: _ } = group;
    let KeyDefaults { budget, expires_in_seconds, metadata: default_metadata } = key_defaults;
    let bounds = budget.bounds.as_deref().map(|bounds| hex::encode(records::bounds(bounds)));
    let texts = [
        ("name", Some(name.clone())),
        ("external_id", external_id.clone()),
        ("metadata", write_metadata(metadata)),
        ("created_at", Some(created_at.millis().to_string())),
        ("default_limit", budget.limit.map(|limit| amount(limit).to_string())),
        ("default_bounds", bounds),
        ("default_life", expires_in_seconds.map(|seconds| seconds.to_string())),
        ("default_metadata", write_metadata(default_metadata)),
    ];
    texts.into_iter().flat_map(|(name, value)| [name.to_owned(), value.unwrap_or_default()]).collect()
}

/// Reads a group from its texts, the ledger's part and the number of its keys; `None` without the ledger's part, when the
/// group does not exist.
pub(in crate::store::redis) fn read_group(
    id: GroupId,
    fields: &Fields,
    spend: Option<&[u8]>,
    keys: u64,
) -> Result<Option<Group>, StoreError> {
    let Some(spend) = spend else { return Ok(None) };
    let set = |name| fields.get(name).filter(|text| !text.is_empty());
    let bounds = set("default_bounds").map(|bounds| {
        let bounds = hex::decode(bounds).ok().and_then(|bounds| records::read_bounds(&bounds));
        bounds.map(Box::new).ok_or_else(|| damaged("default_bounds"))
    });
    let limit = set("default_limit").map(|_| required(fields, "default_limit")).transpose()?;
    let life = set("default_life").map(|_| required(fields, "default_life")).transpose()?;
    let key_defaults = KeyDefaults {
        budget: Budget {
            limit: limit.map(NanoUsd::from_nanos),
            bounds: bounds.transpose()?,
            ..Budget::default()
        },
        expires_in_seconds: life.map(i64::cast_unsigned),
        metadata: read_metadata(fields.get("default_metadata").map(String::as_str))?,
    };
    Ok(Some(Group {
        id,
        name: text(fields, "name")?,
        external_id: set("external_id").cloned(),
        metadata: read_metadata(fields.get("metadata").map(String::as_str))?,
        key_defaults,
        created_at: Timestamp::from_millis(required(fields, "created_at")?),
        keys,
        spend: read_group_spend(spend)?,
    }))
}
