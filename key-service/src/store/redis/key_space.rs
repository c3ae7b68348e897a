//! Names of all data in Redis.
//!
//! The data of an account shares one hash tag, so that all of an account lies in one slot and a script can change it
//! atomically. Lookups that lead to an account (a credential, a name, a due hold) lie in other slots.

use shared::ids::{AccountId, GroupId, KeyId, ManagementKeyId, MemberId, WebhookId};

use crate::store::RecordKind;
use domain::{digest::Digest, key::Status, usage::Day};

/// Number of parts of an index of accounts, which spreads the load over a cluster.
pub(super) const PARTS: usize = 16;

/// Makes the names, which begin with the installation's prefix.
#[derive(Clone, Debug)]
pub(super) struct KeySpace {
    prefix: String,
}

impl KeySpace {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Hash: the account's name and creation time, `funds`, the revision of its groups, and the balances of each key
    /// under the bytes of the key's id, of each group behind a `g`; the opening balance of either behind an `o`.
    pub(super) fn account(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}", self.prefix)
    }

    /// Hash: the open hold of each generation.
    pub(super) fn holds(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:holds", self.prefix)
    }

    /// Hash: the settlement of each captured generation that began in this hour since 1970. Expires some hours later.
    pub(super) fn settled(&self, account: AccountId, hour: i64) -> String {
        format!("{}:{{{account}}}:settled:{hour}", self.prefix)
    }

    /// Hash: the settlement of each expired generation that began on this day, until captured. Expires a month later.
    pub(super) fn expired(&self, account: AccountId, day: i64) -> String {
        format!("{}:{{{account}}}:expired:{day}", self.prefix)
    }

    /// Stream: the settlements of each batch together. The number in an id is the number of the batch's first entry.
    pub(super) fn journal(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:journal", self.prefix)
    }

    /// Stream: the events. The number in an id is the number of the event.
    pub(super) fn events(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:events", self.prefix)
    }

    /// Hash: the number of each event by the bytes of its id, and by the name of each threshold that is told once; under the
    /// empty field, the number up to which all events are in the index.
    pub(super) fn event_numbers(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:event-numbers", self.prefix)
    }

    /// Sorted set: the index of events. Of each event, the bytes of its key's and of its group's id, with its number.
    pub(super) fn event_index(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:event-index", self.prefix)
    }

    /// The names of the events, their numbers and their index, in the order of scripts.
    pub(super) fn all_events(&self, account: AccountId) -> [String; 3] {
        [self.events(account), self.event_numbers(account), self.event_index(account)]
    }

    /// Hash: the amount of each deposit, for good; behind a blank the credit just after it and, behind another, its note and payment.
    pub(super) fn deposits(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:deposits", self.prefix)
    }

    /// Hash: the counters of a day, by the bytes of a key's id and a model.
    pub(super) fn counters(&self, account: AccountId, day: Day) -> String {
        format!("{}:{{{account}}}:usage:{day}", self.prefix)
    }

    /// Hash: the charges of a day by model; behind the model and `\0r` the requests, `\0t` the tokens, `\0c` the cost to the
    /// operator, `\0k` the charges whose cost is known. The empty field marks sums of the whole day: `1` of the charges, `2`
    /// of requests and tokens too, `3` of everything, groups included.
    pub(super) fn spend(&self, account: AccountId, day: Day) -> String {
        format!("{}:{{{account}}}:spend:{day}", self.prefix)
    }

    /// Hash: all sums of a day by the bytes of a group's id.
    pub(super) fn group_spend(&self, account: AccountId, day: Day) -> String {
        format!("{}:{{{account}}}:group-spend:{day}", self.prefix)
    }

    /// Hash: the refused calls of a day, of all keys or of a single key, by hour and reason.
    pub(super) fn refused(&self, account: AccountId, day: i64, key: Option<KeyId>) -> String {
        let key = key.map_or_else(String::new, |key| format!(":{key}"));
        format!("{}:{{{account}}}:refused:{day}{key}", self.prefix)
    }

    /// Sorted set: the bytes of the ids of the keys with refused calls on a day, by the number of the calls.
    pub(super) fn refused_keys(&self, account: AccountId, day: i64) -> String {
        format!("{}:{{{account}}}:refused-keys:{day}", self.prefix)
    }

    /// Sorted set: the ids of API keys with a status, in order. Expired keys stay among the active keys until looked
    /// for.
    pub(super) fn keys_of(&self, account: AccountId, status: Status) -> String {
        format!("{}:{{{account}}}:keys:{}", self.prefix, status.as_str())
    }

    /// Sorted set: the ids of active API keys with an expiry, by time of expiry.
    pub(super) fn expiring(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:keys:expiring", self.prefix)
    }

    /// Sorted set: the bytes of the ids of API keys that spent money, by `used`. The empty member marks a complete set.
    pub(super) fn spenders(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:keys:by-spend", self.prefix)
    }

    /// Sorted set: the ids of API keys, in order.
    pub(super) fn keys(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:keys", self.prefix)
    }

    /// Sorted set: the ids of groups, in order.
    pub(super) fn groups(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:groups", self.prefix)
    }

    /// Hash: the group of each external id.
    pub(super) fn external_ids(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:external-ids", self.prefix)
    }

    /// Hash: name, metadata and further texts of a group, with the number of its children.
    pub(super) fn group(&self, account: AccountId, group: GroupId) -> String {
        format!("{}:{{{account}}}:{group}", self.prefix)
    }

    /// Sorted set: the ids of a group's API keys, in order.
    pub(super) fn keys_in(&self, account: AccountId, group: GroupId) -> String {
        format!("{}:{{{account}}}:{group}:keys", self.prefix)
    }

    /// Hash: label, hint, time and metadata of an API key.
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

    /// Sorted set: the ids of webhooks, in order.
    pub(super) fn webhooks(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:webhooks", self.prefix)
    }

    /// Hash: record and cursor of a webhook.
    pub(super) fn webhook(&self, account: AccountId, webhook: WebhookId) -> String {
        format!("{}:{{{account}}}:{webhook}", self.prefix)
    }

    /// Hash: by event, the number of attempts and the record of each delivery on its way to a webhook.
    pub(super) fn deliveries(&self, account: AccountId, webhook: WebhookId) -> String {
        format!("{}:{{{account}}}:{webhook}:deliveries", self.prefix)
    }

    /// Sorted set: the events on their way to a webhook, by the time of the next attempt.
    pub(super) fn delivery_times(&self, account: AccountId, webhook: WebhookId) -> String {
        format!("{}:{{{account}}}:{webhook}:times", self.prefix)
    }

    /// List: the last attempts of a webhook, newest first.
    pub(super) fn attempts_of(&self, account: AccountId, webhook: WebhookId) -> String {
        format!("{}:{{{account}}}:{webhook}:attempts", self.prefix)
    }

    /// Set: accounts that have webhooks, or had some.
    pub(super) fn webhook_accounts(&self, part: usize) -> String {
        format!("{}:{{webhooks-{part}}}", self.prefix)
    }

    /// The part of the index that lists an account with webhooks.
    pub(super) fn webhook_accounts_of(&self, account: AccountId) -> String {
        self.webhook_accounts(part_of(account))
    }

    /// Sorted set: the ids of members, in order.
    pub(super) fn members(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:members", self.prefix)
    }

    /// Hash: the member of each name.
    pub(super) fn member_names(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:member-names", self.prefix)
    }

    /// Hash: a member.
    pub(super) fn member(&self, account: AccountId, member: MemberId) -> String {
        format!("{}:{{{account}}}:{member}", self.prefix)
    }

    /// String: an expiring record: member, expiry and value.
    pub(super) fn record(&self, account: AccountId, kind: RecordKind, name: &Digest) -> String {
        format!("{}:{{{account}}}:{}:{}", self.prefix, kind.as_str(), hex::encode(name.as_bytes()))
    }

    /// Hash: the names of a member's records of a kind, which may be gone.
    pub(super) fn records_of(&self, account: AccountId, kind: RecordKind, member: MemberId) -> String {
        format!("{}:{{{account}}}:{}s:{member}", self.prefix, kind.as_str())
    }

    /// String: how many attempts to sign in there were under this digest of a name or an address.
    pub(super) fn attempts(&self, name: &Digest) -> String {
        format!("{}:attempts:{}", self.prefix, hex::encode(name.as_bytes()))
    }

    /// String: the request and the key of an idempotency record, under the digest of the idempotency key. Earlier
    /// versions wrote the idempotency key itself: such records are no longer found, and expire within a day.
    pub(super) fn idempotency(&self, account: AccountId, idempotency_key: &Digest) -> String {
        format!("{}:{{{account}}}:idempotency:{}", self.prefix, hex::encode(idempotency_key.as_bytes()))
    }

    /// String: an empty value, written only for the wait until durable.
    pub(super) fn barrier(&self, account: AccountId) -> String {
        format!("{}:{{{account}}}:barrier", self.prefix)
    }

    /// String: an empty value, written only to learn whether replicas answer.
    pub(super) fn readiness(&self) -> String {
        format!("{}:readiness", self.prefix)
    }

    /// String: the credential with this digest: account, key, and number unless it is the key's first.
    pub(super) fn credential(&self, digest: &Digest) -> Vec<u8> {
        let mut name = format!("{}:credential:", self.prefix).into_bytes();
        name.extend_from_slice(digest.as_bytes());
        name
    }

    /// String: the account of a management key.
    pub(super) fn owner(&self, key: ManagementKeyId) -> String {
        format!("{}:owner:{key}", self.prefix)
    }

    /// Sorted set: the ids of all accounts, in order.
    pub(super) fn accounts(&self) -> String {
        format!("{}:{{accounts}}", self.prefix)
    }

    /// Hash: the account of each name; in the same slot as the list.
    pub(super) fn account_names(&self) -> String {
        format!("{}:{{accounts}}:names", self.prefix)
    }

    /// Sorted set: accounts that may have holds, by the time of the last listing.
    pub(super) fn holders(&self, part: usize) -> String {
        format!("{}:{{holders-{part}}}", self.prefix)
    }

    /// The part of the index that lists an account.
    pub(super) fn holders_of(&self, account: AccountId) -> String {
        self.holders(part_of(account))
    }

    /// String: the record of the peppers that credentials were made with.
    pub(super) fn pepper_record(&self) -> String {
        format!("{}:peppers", self.prefix)
    }

    /// String: the number of the data layout.
    pub(super) fn schema(&self) -> String {
        format!("{}:schema", self.prefix)
    }

    /// Hash: the count at which each data directory last saw this part of the store.
    pub(super) fn marks(&self, part: usize) -> String {
        format!("{}:{{holders-{part}}}:marks", self.prefix)
    }
}

/// Part of an index that lists an account.
fn part_of(account: AccountId) -> usize {
    usize::from(account.as_bytes()[15]) % PARTS
}
