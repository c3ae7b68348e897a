//! Stored records of accounts, management keys and operator keys.

use std::collections::BTreeMap;

use domain::access::{Access, OperatorRights};
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
    /// Whether the account has an external id, which another record claims. If so, only the account's creator may
    /// complete it.
    #[cbor(n(2), default)]
    pub has_external_id: bool,
}

/// The account that claims an external id. Space `account-external-ids/…`, set `account external ids`, name: the
/// external id. It is written before the account's name, so the account may not exist.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct AccountClaim {
    #[n(0)]
    pub account: AccountId,
    #[n(1)]
    pub created_at: Timestamp,
    /// Name that the account gets, unless another account has it.
    #[n(2)]
    pub name: String,
}

/// What operators record of an account. Set `profiles`, name `o`. It is separate from the profile, because programs
/// that do not know these labels write profiles too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct AccountLabelsRecord {
    #[n(0)]
    pub external_id: Option<String>,
    #[n(1)]
    pub metadata: BTreeMap<String, String>,
    /// Why the account is suspended; `None` while it is active.
    #[n(2)]
    pub suspended_reason: Option<String>,
}

/// Ids of an account's management keys, members, webhooks or alerts, or of the operator keys, oldest first. Set
/// `management keys`, `members`, `webhooks`, `alerts` or `operator keys`, name `l`.
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

/// An operator key. In the operators' space, set `operator keys`, name `k` and the id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct OperatorKeyRecord {
    #[n(0)]
    pub name: String,
    /// Part of the plaintext that may be shown.
    #[n(1)]
    pub hint: String,
    #[n(2)]
    pub rights: OperatorRights,
    #[n(3)]
    pub created_at: Timestamp,
    /// Expiry that the key was created with. A rotation does not change it.
    #[n(4)]
    pub expires_at: Option<Timestamp>,
    /// Last recorded use. The last use was within a minute of it.
    #[n(5)]
    pub last_used_at: Option<Timestamp>,
    #[n(6)]
    pub revoked_at: Option<Timestamp>,
    /// Time from which the key is refused because another key replaced it.
    #[n(7)]
    pub ends_at: Option<Timestamp>,
}

/// The account of a management key. Space `management-keys/…`, set `management key owners`, name: the key's id. It is
/// written before the key, so the key may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ManagementKeyOwner {
    #[n(0)]
    pub account: AccountId,
}
