use domain::{group::Group, ledger};
use key_service_ledger::{
    StoreError,
    stored::{Balance, GroupProfile},
};
use records::Record;
use shared::{ids::GroupId, money::NanoUsd};

use crate::store::base::{damaged, value};

pub(crate) fn group_id(bytes: &[u8]) -> Result<GroupId, StoreError> {
    GroupId::from_slice(bytes).ok_or_else(|| damaged("a group's id"))
}

/// Returns a group's profile, with no child groups and no opening balance.
pub(super) fn to_profile(group: &Group) -> GroupProfile {
    let Group { id: _, name, external_id, metadata, key_defaults, created_at, keys, spend: _ } =
        group.clone();
    let (children, opening) = (0, NanoUsd::ZERO);
    GroupProfile { name, external_id, metadata, key_defaults, created_at, keys, children, opening }
}

/// Builds a group from its money and profile.
pub(super) fn from_profile(id: GroupId, spend: ledger::Group, profile: GroupProfile) -> Group {
    let GroupProfile { name, external_id, metadata, key_defaults, created_at, keys, .. } = profile;
    Group { id, name, external_id, metadata, key_defaults, created_at, keys, spend }
}

/// Builds a group from its two records.
pub(super) fn from_records(
    id: GroupId,
    money: &Record,
    profile: Option<&Record>,
) -> Result<Group, StoreError> {
    let Balance { of: spend, .. } = value(money)?;
    let profile = profile.ok_or_else(|| damaged("the profile of a group"))?;
    Ok(from_profile(id, spend, value(profile)?))
}
