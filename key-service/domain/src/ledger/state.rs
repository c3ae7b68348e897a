//! What a command reads and writes: the account, a key with the groups that pay along, and a record.

use std::time::Duration;

use shared::{ids::GroupId, money::NanoUsd, time::Timestamp};

use super::{
    bounds::Budget,
    record::{Payer, Record},
};

/// Largest time by which a bill is later than the clock, so that it is not earlier than the bill before.
pub const MOST_CARRIED: Duration = Duration::from_hours(24);

/// Money and lease time of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Prepaid credit: deposits raise it, settlements lower it, corrections may give some back.
    pub credit: NanoUsd,
    /// Part of the credit that open holds cover.
    pub held: NanoUsd,
    /// Lease time: the number of ticks so far.
    pub tick: u64,
    /// The last deposit; thresholds of the credit are parts of it.
    pub last_deposit: Option<LastDeposit>,
    /// Time of the last entry of the journal. Later entries are not earlier than this, unless a clock was far ahead.
    pub billed_at: Option<Timestamp>,
}

impl Account {
    /// Time from which a window counts that is set now: every bill so far is earlier, unless a clock was far ahead.
    pub fn windows_begin(&self, now: Timestamp) -> Timestamp {
        let last = self.billed_at.filter(|at| *at <= now.plus(MOST_CARRIED));
        last.map_or(now, |at| now.max(at.plus(Duration::from_millis(1))))
    }
}

/// The last deposit of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastDeposit {
    /// Credit just after the deposit.
    pub credit: NanoUsd,
    pub at: Timestamp,
}

/// The ledger's part of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    pub budget: Budget,
    /// The group whose bounds hold too.
    pub group: Option<GroupId>,
    /// Credentials that the key accepts.
    pub rotation: Rotation,
    /// Instant from which the key is refused.
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
    /// Refuses the key until its owner enables it again.
    pub disabled: bool,
    pub last_used_at: Option<Timestamp>,
}

/// Credentials of a key, by number: a key is made with credential 0, and each rotation adds the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// Number of the current credential, which is the number of rotations so far.
    pub current: u64,
    /// Instant from which the previous credential is refused; `None` if the rotation refused it at once.
    pub previous_until: Option<Timestamp>,
}

impl Rotation {
    /// Returns the instant from which the previous credential is refused, while it is accepted.
    pub fn grace(&self, now: Timestamp) -> Option<Timestamp> {
        self.previous_until.filter(|until| now < *until)
    }

    /// Returns whether the credential of this number is current, or the previous one within its grace.
    pub fn accepts(&self, credential: u64, now: Timestamp) -> bool {
        credential == self.current
            || credential.checked_add(1) == Some(self.current) && self.grace(now).is_some()
    }
}

/// The ledger's part of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Money and bounds that the keys of the group and of its child groups share.
    pub budget: Budget,
    /// The group whose bounds hold too. A parent has no parent.
    pub parent: Option<GroupId>,
    /// Time from which the keys of the group and of its child groups are refused.
    pub archived_at: Option<Timestamp>,
}

/// Groups that pay along with a key: the key's group and the group's parent.
pub type Groups = [Option<(GroupId, Group)>; 2];

/// Everything that a command reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub account: Account,
    /// The key that the command names; `None` if it names none, or if the account does not have the key.
    pub key: Option<Key>,
    /// Groups that pay: those of the record, or of the key if there is no hold or settlement yet.
    pub groups: Groups,
    /// The record under the command's [`RecordId`](super::RecordId).
    pub record: Record,
    /// The store has dropped all bills of the time at which the generation began, so that it may have been billed although
    /// there is no record.
    pub is_forgotten: bool,
}

impl State {
    /// Completes the state with the groups that pay; `find` reads a group of the account.
    pub fn load<E>(
        account: Account,
        key: Option<Key>,
        record: Record,
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
            (None, None) => [None, None],
        };
        Ok(Self { account, key, groups, record, is_forgotten: false })
    }
}
