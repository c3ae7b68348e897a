//! Stored records of groups beside their money.

use std::collections::BTreeMap;

use domain::group::KeyDefaults;
use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{ids::GroupId, money::NanoUsd, time::Timestamp};

/// Data of a group other than money. Set `profiles`, name `g` and the group's id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct GroupProfile {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub external_id: Option<String>,
    #[n(2)]
    pub metadata: BTreeMap<String, String>,
    /// Settings of keys that are made in the group.
    #[n(3)]
    pub key_defaults: KeyDefaults,
    #[n(4)]
    pub created_at: Timestamp,
    /// Number of keys in the group, revoked keys included.
    #[n(5)]
    pub keys: u64,
    /// Number of groups whose parent is this group.
    #[n(6)]
    pub children: u64,
    /// Amount spent before the group was made, with which its `used` began.
    #[n(7)]
    pub opening: NanoUsd,
}

/// The group of an external id. Set `external_ids`, name: the external id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ExternalId {
    #[n(0)]
    pub group: GroupId,
}
