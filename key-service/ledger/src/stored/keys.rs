//! Stored records of credentials and of keys, except their money.

use std::collections::BTreeMap;

use domain::digest::Digest;
use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{ids::Principal, money::NanoUsd, time::Timestamp};

use crate::stored::secret::hidden;

/// Data of a key other than money. Set `profiles`, name `k` and the key's id.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct KeyProfile {
    #[n(0)]
    pub label: String,
    /// Part of the plaintext that may be shown.
    #[n(1)]
    pub hint: String,
    #[n(2)]
    pub created_at: Timestamp,
    #[n(3)]
    pub metadata: BTreeMap<String, String>,
    /// Amount that an imported key had already spent. `used` starts with this amount.
    #[n(4)]
    pub opening: NanoUsd,
    /// Credentials that rotations created, except for those that were already forgotten.
    #[n(5)]
    pub rotated: Vec<Rotated>,
}

/// A credential created by a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Rotated {
    /// Number of the credential among the key's credentials, counted from zero.
    #[n(0)]
    pub number: u64,
    #[n(1)]
    #[serde(serialize_with = "hidden")]
    pub digest: Digest,
}

/// Owner of a credential. Space `credentials/…`, which the digest selects; set `credentials`, name: the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Credential {
    #[n(0)]
    pub owner: Principal,
    /// Number of the credential among the key's credentials ([`domain::ledger::Rotation`]).
    #[n(1)]
    pub number: u64,
}

impl Credential {
    /// Returns the credential with which a key is created.
    pub const fn first(owner: Principal) -> Self {
        Self { owner, number: 0 }
    }
}

/// Result of the request with an idempotency key. Set `idempotency`, name: the digest of the idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct IdempotencyKey {
    #[n(0)]
    #[serde(serialize_with = "hidden")]
    pub request: Digest,
    /// Id of the created object. For a new credential of a key, the beginning of a digest of the credential's digest.
    #[cbor(n(1), with = "minicbor::bytes")]
    pub made: [u8; 16],
    /// Time from which the idempotency key may be used again.
    #[n(2)]
    pub expires_at: Timestamp,
}

/// The peppers with which credentials were created. Set `installation`, name `p`, space `installation`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct PepperRecord {
    #[n(0)]
    #[serde(serialize_with = "hidden")]
    pub record: String,
}
