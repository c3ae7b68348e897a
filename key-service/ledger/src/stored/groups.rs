//! Stored records of groups, except their money.

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
    /// Default settings for keys created in the group.
    #[n(3)]
    pub key_defaults: KeyDefaults,
    #[n(4)]
    pub created_at: Timestamp,
    /// Number of keys in the group, including revoked ones.
    #[n(5)]
    pub keys: u64,
    #[n(6)]
    pub children: u64,
    /// Amount spent before the group was created; `used` starts with it.
    #[n(7)]
    pub opening: NanoUsd,
}

/// The group with an external id. Set `external_ids`, name: the external id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ExternalId {
    #[n(0)]
    pub group: GroupId,
}
