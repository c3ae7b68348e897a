//! Identifiers. Each consists of a prefix for its kind, and of a UUIDv7 as 32 hexadecimal digits.

use std::{borrow::Cow, fmt, str::FromStr};

use minicbor::{Decode, Encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::{Uuid, fmt::Simple};

use crate::timing::{
    clock::{Clock, random_bytes},
    time::Timestamp,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected `{prefix}` and 32 lower-case hexadecimal digits")]
pub struct InvalidId {
    prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            /// Makes an identifier from a time and random bytes. Sorted identifiers are in the order of their times.
            pub fn new(now: Timestamp, random: [u8; 10]) -> Self {
                let millis = u64::try_from(now.millis()).unwrap_or(0);
                Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
            }

            /// Makes an identifier from the clock's time, and from random bytes of the clock.
            pub fn generate(clock: &dyn Clock) -> Self {
                Self::new(clock.now(), random_bytes(clock))
            }

            /// Returns the time at which the identifier was made, on the clock of the process that made it.
            pub fn created_at(&self) -> Timestamp {
                let [a, b, c, d, e, f, ..] = *self.0.as_bytes();
                let millis = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
                Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
            }

            /// Returns the identifier's 16 bytes, which are stored in records. Between the services, identifiers are
            /// sent as text, except a `RequestId`.
            pub fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Reads an identifier from 16 bytes; `None` for any other length.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                Uuid::from_slice(bytes).ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                f.write_str(self.0.simple().encode_lower(&mut [0; Simple::LENGTH]))
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let invalid = InvalidId { prefix: $prefix };
                let hex = text.strip_prefix($prefix).ok_or(invalid)?;
                let canonical = hex.len() == 32 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                if !canonical {
                    return Err(invalid);
                }
                Uuid::try_parse(hex).map(Self).map_err(|_| invalid)
            }
        }

        impl<C> minicbor::Encode<C> for $name {
            fn encode<W: minicbor::encode::Write>(
                &self,
                encoder: &mut minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                encoder.bytes(self.0.as_bytes())?.ok()
            }
        }

        impl<'b, C> minicbor::Decode<'b, C> for $name {
            fn decode(
                decoder: &mut minicbor::Decoder<'b>,
                _: &mut C,
            ) -> Result<Self, minicbor::decode::Error> {
                Self::from_slice(decoder.bytes()?).ok_or_else(|| minicbor::decode::Error::message("not an id"))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": concat!("^", $prefix, "[0-9a-f]{32}$")})
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// An account, which owns keys and credit.
    AccountId,
    "acct_"
);
id!(KeyId, "ak_");
id!(
    /// A group of API keys, which share limits.
    GroupId,
    "grp_"
);
id!(ManagementKeyId, "mk_");
id!(
    /// A key of the operators, for the operator API.
    OperatorKeyId,
    "opk_"
);
id!(
    /// A member: a person who signs in to the dashboard of an account.
    MemberId,
    "mem_"
);
id!(
    /// A session of a member. Lists of sessions show this id. It is not a credential.
    SessionId,
    "ses_"
);
id!(
    /// A generation: one model call. The id is also that of the hold and of the bill, so that commands about them are
    /// idempotent.
    GenerationId,
    "gen_"
);
id!(RefusalId, "ref_");
id!(DepositId, "dep_");
id!(
    /// An event: a change in an account, or a threshold that its spending crossed.
    EventId,
    "evt_"
);
id!(
    /// A webhook: an address to which an account's events are sent.
    WebhookId,
    "wh_"
);
id!(
    /// An alert: a rule about an account, and where its messages go.
    AlertId,
    "alr_"
);
id!(
    /// An HTTP request. Its id is in `x-request-id`.
    RequestId,
    "req_"
);

/// Whom a credential belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode, Serialize)]
#[serde(rename_all = "snake_case")]
#[cbor(flat)]
pub enum Principal {
    /// An API key of the account.
    #[n(0)]
    ApiKey(#[n(0)] AccountId, #[n(1)] KeyId),
    /// A management key of the account.
    #[n(1)]
    ManagementKey(#[n(0)] AccountId, #[n(1)] ManagementKeyId),
    /// An operator key. Its account is the operators' own.
    #[n(2)]
    OperatorKey(#[n(0)] AccountId, #[n(1)] OperatorKeyId),
}

impl Principal {
    pub const fn account(self) -> AccountId {
        match self {
            Self::ApiKey(account, _) | Self::ManagementKey(account, _) | Self::OperatorKey(account, _) => {
                account
            }
        }
    }

    /// Time at which the key was made.
    pub fn created_at(self) -> Timestamp {
        match self {
            Self::ApiKey(_, id) => id.created_at(),
            Self::ManagementKey(_, id) => id.created_at(),
            Self::OperatorKey(_, id) => id.created_at(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_what_it_writes_and_sorts_by_time() {
        let early = KeyId::new(Timestamp::from_millis(1_000), [255; 10]);
        let late = KeyId::new(Timestamp::from_millis(1_001), [0; 10]);
        assert!(early < late && early.to_string() < late.to_string());
        assert_eq!(early.to_string().parse(), Ok(early));
        assert_eq!(KeyId::from_slice(early.as_bytes()), Some(early));
        assert_eq!(late.created_at(), Timestamp::from_millis(1_001));
    }

    #[test]
    fn other_spellings_are_refused() {
        let id = KeyId::new(Timestamp::from_millis(1), [171; 10]).to_string();
        for bad in [
            id.to_uppercase(),
            id.replace("ak_", "mk_"),
            format!("{id}0"),
            id[..34].to_owned(),
            String::new(),
        ] {
            assert!(bad.parse::<KeyId>().is_err(), "{bad}");
        }
    }
}
