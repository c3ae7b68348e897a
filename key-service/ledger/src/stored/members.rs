//! Stored records of members and their means of signing in.

use domain::digest::Digest;
use domain::member::MadeLink;
use domain::member::PasswordHash;
use domain::member::Role;
use domain::second_factor::SecondFactor;
use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{ids::MemberId, time::Timestamp};

use crate::stored::secret::hidden;

/// A member of an account. Set `members`, name `m` and the id. A version of the program that does not know the role
/// cannot read the record, and so never overwrites it.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct MemberRecord {
    #[n(0)]
    pub name: String,
    #[n(1)]
    pub role: Role,
    #[n(2)]
    #[serde(serialize_with = "hidden", skip_serializing_if = "Option::is_none")]
    pub password: Option<PasswordHash>,
    #[n(3)]
    pub created_at: Timestamp,
    /// The member's most recent sign-in link.
    #[cbor(n(4), with = "shared::stored::known_value", has_nil)]
    pub last_link: Option<MadeLink>,
    #[n(5)]
    #[serde(serialize_with = "hidden", skip_serializing_if = "Option::is_none")]
    pub second_factor: Option<SecondFactor>,
}

/// The member that a name belongs to. Set `members`, name `n` and the member's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct MemberName {
    #[n(0)]
    pub member: MemberId,
}

/// A sign-in link or a session. Set `expiring`, name `l` or `s` and the digest of the secret.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct ExpiringValue {
    #[n(0)]
    pub member: MemberId,
    #[n(1)]
    pub expires_at: Timestamp,
    #[n(2)]
    #[serde(serialize_with = "hidden")]
    pub value: String,
}

/// The latest link of a member, which replaced the previous link. The latest link may have been used or have expired.
/// Set `expiring`, name `m` and the member's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct LatestLink {
    #[n(0)]
    #[serde(serialize_with = "hidden")]
    pub digest: Digest,
}

/// A count of sign-in attempts. Space `attempts/…`, set `attempts`, name: the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Attempts {
    #[n(0)]
    pub count: u64,
    /// When the count is forgotten.
    #[n(1)]
    pub until: Timestamp,
}
