//! Converts groups' profiles to messages and back.

use domain::{
    group::{Group, KeyDefaults},
    ledger,
    settings::Metadata,
};
use key_service_ledger::{
    StoreError, codec,
    messages::{self, GroupProfile},
};
use records::Record;
use shared::{ids::GroupId, time::Timestamp};

use crate::store::base::{damaged, message};

pub(crate) fn group_id(bytes: &[u8]) -> Result<GroupId, StoreError> {
    GroupId::from_slice(bytes).ok_or_else(|| damaged("a group's id"))
}

/// The profile of a group without children and opening balance.
pub(super) fn to_profile(group: &Group) -> GroupProfile {
    let Group { id: _, name, external_id, metadata, key_defaults, created_at, keys, spend: _ } = group;
    let KeyDefaults { budget, expires_in_seconds, metadata: of_keys } = key_defaults;
    let key_defaults = messages::KeyDefaults {
        budget: Some(codec::write_budget(budget)),
        expires_in_seconds: *expires_in_seconds,
        metadata: of_keys.clone().into_iter().collect(),
    };
    GroupProfile {
        name: name.clone(),
        external_id: external_id.clone(),
        metadata: metadata.clone().into_iter().collect(),
        key_defaults: Some(key_defaults),
        created_at: created_at.millis(),
        keys: *keys,
        children: 0,
        opening: 0,
    }
}

/// Makes a group from its money and profile.
pub(super) fn from_profile(
    id: GroupId,
    spend: ledger::Group,
    profile: GroupProfile,
) -> Result<Group, StoreError> {
    let GroupProfile { name, external_id, metadata, key_defaults, created_at, keys, .. } = profile;
    let messages::KeyDefaults { budget, expires_in_seconds, metadata: of_keys } =
        key_defaults.unwrap_or_default();
    let budget = codec::read_budget(budget.unwrap_or_default()).ok_or_else(|| damaged("defaults of keys"))?;
    let metadata_of_keys = of_keys.into_iter().collect::<Metadata>();
    Ok(Group {
        id,
        name,
        external_id,
        metadata: metadata.into_iter().collect(),
        key_defaults: KeyDefaults { budget, expires_in_seconds, metadata: metadata_of_keys },
        created_at: Timestamp::from_millis(created_at),
        keys,
        spend,
    })
}

/// Makes a group from its two records.
pub(super) fn from_records(
    id: GroupId,
    money: &Record,
    profile: Option<&Record>,
) -> Result<Group, StoreError> {
    let spend = codec::read_group(message(money)?).ok_or_else(|| damaged("money of a group"))?.of;
    let profile = profile.ok_or_else(|| damaged("the profile of a group"))?;
    from_profile(id, spend, message(profile)?)
}

#[cfg(test)]
mod fuzz;
