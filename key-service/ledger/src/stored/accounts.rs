//! Stored records of accounts and management keys.

use domain::access::Access;
use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{ids::AccountId, time::Timestamp};

/// Data of an account other than money. Set `profiles`, name `a`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct AccountProfile {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub created_at: Timestamp,
    /// Number of API keys ever created.
    #[n(2)]
    pub keys: u64,
    /// Number of groups ever created.
    #[n(3)]
    pub groups: u64,
}

/// The account that has a name. Space `accounts/…`, set `account names`, name: the account's name. This record is
/// written before the account's own records, of which the profile is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct AccountName {
    #[n(0)]
    pub account: AccountId,
    #[n(1)]
    pub created_at: Timestamp,
}

/// Ids of an account's management keys, members or webhooks, oldest first. Set `management keys`, `members` or
/// `webhooks`, name `l`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct IdList<T> {
    #[n(0)]
    pub ids: Vec<T>,
}

impl<T> Default for IdList<T> {
    fn default() -> Self {
        Self { ids: Vec::new() }
    }
}

/// A management key. Set `management keys`, name `k` and the id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ManagementKeyRecord {
    #[n(0)]
    pub name: String,
    /// Part of the plaintext that may be shown.
    #[n(1)]
    pub hint: String,
    #[n(2)]
    pub access: Access,
    #[n(3)]
    pub created_at: Timestamp,
    #[n(4)]
    pub expires_at: Option<Timestamp>,
    /// When the key was last used, as recorded at most once a minute.
    #[n(5)]
    pub last_used_at: Option<Timestamp>,
    #[n(6)]
    pub revoked_at: Option<Timestamp>,
}

/// The account of a management key. Space `management-keys/…`, set `management key owners`, name: the key's id. It is
/// written before the key, so the key may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ManagementKeyOwner {
    #[n(0)]
    pub account: AccountId,
}
