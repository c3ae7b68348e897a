//! What everything is called in Redis.
//!
//! All of an account shares one hash tag, so that it lies in one slot and one script can change it whole. What finds
//! an account (a credential, a name, a due hold) lies in slots of its own.

use shared::{
    digest::Digest,
    ids::{AccountId, KeyId, ManagementKeyId},
};

use crate::domain::usage::Day;

/// Parts that the index of accounts with holds is cut into, so that a cluster shares its load.
pub(super) const PARTS: usize = 16;

/// Names that begin with the installation's own word.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: String,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Hash: name, credit, held, …
    pub(super) fn account(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}", self.prefix)
    }

    /// Hash: what is recorded under a generation's id.
    pub(super) fn records(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:records", self.prefix)
    }

    /// Sorted set: open holds, as key and generation, by the end of their lease.
    pub(super) fn leases(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:leases", self.prefix)
    }

    /// Sorted set: settled generations in their order.
    pub(super) fn journal(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:journal", self.prefix)
    }

    /// Hash: by key, the charges of entries that the journal no longer has, and the number `until` which it has none.
    pub(super) fn archive(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:archive", self.prefix)
    }

    /// Hash: the amount of each deposit, for good.
    pub(super) fn deposits(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:deposits", self.prefix)
    }

    /// Hash: by key and model, what was counted on a day.
    pub(super) fn counters(&self, account: AccountId, day: Day) -> String {
        format!("{}:{{{account}}}:usage:{day}", self.prefix)
    }

    /// Sorted set: the ids of API keys, in their order.
    pub(super) fn keys(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:keys", self.prefix)
    }

    /// Hash: an API key. The name ends with the key's id.
    pub(super) fn key(&self, account: AccountId, key: KeyId) -> String {
        format!("{}:{{{account}}}:{key}", self.prefix)
    }

    /// Sorted set: the ids of management keys, in their order.
    pub(super) fn management_keys(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:management-keys", self.prefix)
    }

    /// Hash: a management key.
    pub(super) fn management_key(&self, account: AccountId, key: ManagementKeyId) -> String {
        format!("{}:{{{account}}}:{key}", self.prefix)
    }

    /// String: what an idempotency key stands for.
    pub(super) fn promise(&self, account: AccountId, idempotency_key: &str) -> String {
        format!("{}:{{{account}}}:promise:{idempotency_key}", self.prefix)
    }

    /// String: an empty one, written only to be waited for.
    pub(super) fn barrier(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:barrier", self.prefix)
    }

    /// String: whose credential has this digest.
    pub(super) fn credential(&self, digest: &Digest) -> Vec<u8> {
        let mut name = format!("{}:credential:", self.prefix).into_bytes();
        name.extend_from_slice(digest.as_bytes());
        name
    }

    /// String: which account a management key belongs to.
    pub(super) fn owner(&self, key: ManagementKeyId) -> String {
        format!("{}:owner:{key}", self.prefix)
    }

    /// Sorted set: the ids of all accounts, in their order.
    pub(super) fn accounts(&self) -> String {
        format!("{}:{{accounts}}", self.prefix)
    }

    /// Hash: the account of each name; in one slot with the list.
    pub(super) fn account_names(&self) -> String {
        format!("{}:{{accounts}}:names", self.prefix)
    }

    /// Sorted set: accounts that may have holds, by the time until which they are surely listed.
    pub(super) fn holders(&self, part: usize) -> String {
        format!("{}:{{holders-{part}}}", self.prefix)
    }

    /// The part of the index that lists an account.
    pub(super) fn holders_of(&self, account: AccountId) -> String {
        self.holders(usize::from(account.as_bytes()[15]) % PARTS)
    }

    /// Hash: when each data directory last saw this part of the store.
    pub(super) fn marks(&self, part: usize) -> String {
        format!("{}:{{holders-{part}}}:marks", self.prefix)
    }
}
