//! What a command reads and writes: the account, a key and the groups that pay for it, and a record.

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::Serialize;
use shared::{ids::GroupId, money::NanoUsd, refusal::Refusal, time::Timestamp};

use super::{
    bounds::{BoundsPatch, Budget},
    record::{Payer, Record},
};

/// How far ahead of the clock a bill's time may be, so that it does not precede the previous bill.
pub const MOST_CARRIED: Duration = Duration::from_hours(24);

/// Money and lease time of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Account {
    /// Prepaid credit: deposits raise it, settlements lower it, corrections may return some.
    #[n(0)]
    pub credit: NanoUsd,
    /// Part of the credit reserved by open holds.
    #[n(1)]
    pub held: NanoUsd,
    /// Lease time: the number of ticks so far.
    #[n(2)]
    pub tick: u64,
    /// The last deposit; the credit's thresholds are percentages of it.
    #[n(3)]
    pub last_deposit: Option<LastDeposit>,
    /// Time of the journal's last entry. Later entries do not have earlier times, unless a clock was far ahead.
    #[n(4)]
    pub billed_at: Option<Timestamp>,
    /// Whether the account is suspended or closed; `None` while it is active.
    #[n(5)]
    pub standing: Option<Standing>,
}

/// When an account was suspended, and closed after that. An account without it is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Standing {
    #[n(0)]
    pub suspended_at: Timestamp,
    /// A closed account never opens again.
    #[n(1)]
    pub closed_at: Option<Timestamp>,
}

impl Standing {
    pub const fn is_closed(&self) -> bool {
        self.closed_at.is_some()
    }

    /// Returns the refusal of an API key's requests.
    pub const fn refusal(&self) -> Refusal {
        if self.is_closed() { Refusal::AccountClosed } else { Refusal::AccountSuspended }
    }
}

impl Account {
    /// Returns when a window that is set now starts to count: after every bill so far, unless a clock was far ahead.
    pub fn windows_begin(&self, now: Timestamp) -> Timestamp {
        let last = self.billed_at.filter(|at| *at <= now.plus(MOST_CARRIED));
        last.map_or(now, |at| now.max(at.plus(Duration::from_millis(1))))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct LastDeposit {
    /// Credit just after the deposit.
    #[n(0)]
    pub credit: NanoUsd,
    #[n(1)]
    pub at: Timestamp,
}

/// The ledger's part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Key {
    #[n(0)]
    pub budget: Budget,
    /// The group, whose bounds apply too.
    #[n(1)]
    pub group: Option<GroupId>,
    /// Which credentials the key accepts.
    #[n(2)]
    pub rotation: Rotation,
    /// When the key expires, if ever.
    #[n(3)]
    pub expires_at: Option<Timestamp>,
    #[n(4)]
    pub revoked_at: Option<Timestamp>,
    /// Whether the key is refused until its owner enables it again.
    #[n(5)]
    pub disabled: bool,
    #[n(6)]
    pub last_used_at: Option<Timestamp>,
}

/// Credentials of a key, by number: a key begins with credential 0, and each rotation adds the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Rotation {
    /// Number of the current credential, which is the number of rotations so far.
    #[n(0)]
    pub current: u64,
    /// When the previous credential expires; `None` if the rotation refused it at once.
    #[n(1)]
    pub previous_until: Option<Timestamp>,
}

impl Rotation {
    /// Returns when the previous credential expires, while it is still accepted.
    pub fn grace(&self, now: Timestamp) -> Option<Timestamp> {
        self.previous_until.filter(|until| now < *until)
    }

    /// Returns whether the credential with this number is current, or the previous one within its grace period.
    pub fn accepts(&self, credential: u64, now: Timestamp) -> bool {
        credential == self.current
            || credential.checked_add(1) == Some(self.current) && self.grace(now).is_some()
    }
}

/// The ledger's part of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Group {
    /// Money and bounds shared by the keys of the group and its child groups.
    #[n(0)]
    pub budget: Budget,
    /// The parent group, whose bounds apply too. A parent has no parent.
    #[n(1)]
    pub parent: Option<GroupId>,
    /// When the group was archived. From then on, the keys of the group and its child groups are refused.
    #[n(2)]
    pub archived_at: Option<Timestamp>,
    /// The payments that made up the limit; `None` until the first one.
    #[n(3)]
    pub wallet: Option<Wallet>,
}

/// The wallet of a group. The group's limit is always `opening + paid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Wallet {
    /// The limit before the first payment.
    #[n(0)]
    pub opening: NanoUsd,
    /// Sum of all payments, less all refunds.
    #[n(1)]
    pub paid: NanoUsd,
}

impl Group {
    /// Returns the limit of a wallet that this change would replace. Only payments and refunds change that limit.
    pub fn paid_limit(&self, patch: &BoundsPatch) -> Option<NanoUsd> {
        let limit = self.wallet.and(self.budget.limit)?;
        patch.limit.filter(|new| *new != Some(limit)).map(|_| limit)
    }
}

/// Groups that pay together with a key: its group and that group's parent.
pub type Groups = [Option<(GroupId, Group)>; 2];

/// Everything that a command reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub account: Account,
    /// The key that the command names; `None` if it names no key, or if the account does not have the key.
    pub key: Option<Key>,
    /// Groups that pay: the record's groups, or the key's if there is no hold or settlement yet. For a payment or a
    /// refund, the group that it names.
    pub groups: Groups,
    /// The record under the command's [`RecordId`](super::RecordId).
    pub record: Record,
    /// Whether the store has dropped all bills from the generation's time, so that it may have been billed although
    /// there is no record.
    pub is_forgotten: bool,
}

impl State {
    /// Completes the state with the groups that pay, or with the group that the command names. `find` reads a group of
    /// the account.
    pub fn load<E>(
        account: Account,
        key: Option<Key>,
        record: Record,
        named: Option<GroupId>,
        mut find: impl FnMut(GroupId) -> Result<Option<Group>, E>,
    ) -> Result<Self, E> {
        let mut find = |id: Option<GroupId>| -> Result<Option<(GroupId, Group)>, E> {
            let Some(id) = id else { return Ok(None) };
            Ok(find(id)?.map(|group| (id, group)))
        };
        let groups = match (record.payer(), &key) {
            (Some(Payer { groups: [group, parent], .. }), _) => [find(*group)?, find(*parent)?],
            (None, Some(key)) => {
                let group = find(key.group)?;
                let parent = find(group.as_ref().and_then(|(_, group)| group.parent))?;
                [group, parent]
            }
            (None, None) => [find(named)?, None],
        };
        Ok(Self { account, key, groups, record, is_forgotten: false })
    }
}
