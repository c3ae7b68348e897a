//! Slots for chat requests in flight. One account has a part of them at most, and so have callers that are not authenticated yet.

use std::{sync::Arc, time::Duration};

use shared::ids::AccountId;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::shares::{AccountShares, Unit};

/// The part of all slots for requests on connections on which no credential was accepted yet, while they are authorized.
const PART_OF_NEWCOMERS: usize = 4;
/// Time that a request on one of these connections waits for its turn: authorizations take milliseconds.
const TURN: Duration = Duration::from_secs(2);

/// Slots for chat requests, shared by all workers.
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    newcomers: Arc<Semaphore>,
    accounts: AccountShares,
}

/// A place for one chat request, reserved before its hold is opened: taking on what it owes can then not fail.
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
    /// Until the request is authorized.
    newcomer: Option<OwnedSemaphorePermit>,
    /// From then on.
    share: Option<Unit>,
    accounts: AccountShares,
}

impl Slots {
    /// Creates this many slots, of which one account may have at most `per_account`.
    pub(crate) fn new(slots: usize, per_account: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(slots)),
            newcomers: Arc::new(Semaphore::new((slots / PART_OF_NEWCOMERS).max(1))),
            accounts: AccountShares::new(per_account),
        })
    }

    /// A slot, if one is free. A request on a connection that is not trusted waits for its turn.
    pub(crate) async fn reserve(&self, trusted: bool) -> Option<Slot> {
        let newcomer = if trusted {
            None
        } else {
            Some(timeout(TURN, self.newcomers.clone().acquire_owned()).await.ok()?.ok()?)
        };
        let slot = self.free.clone().try_acquire_owned().ok()?;
        Some(Slot { _permit: slot, newcomer, share: None, accounts: self.accounts.clone() })
    }
}

impl Slot {
    /// Counts the slot against the account that was found to pay, and returns whether it had one left.
    pub(super) fn charge_to(&mut self, account: AccountId) -> bool {
        self.newcomer = None;
        if self.share.is_none() {
            self.share = self.accounts.unit(account);
        }
        self.share.is_some()
    }
}

#[cfg(test)]
mod tests {
    use shared::clock::System;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn neither_an_account_nor_newcomers_take_all_slots() {
        let slots = Slots::new(8, 3);
        let newcomers = [slots.reserve(false).await, slots.reserve(false).await];
        assert!(newcomers.iter().all(Option::is_some) && slots.reserve(false).await.is_none());
        let account = AccountId::generate(&System);
        let mut taken = Vec::new();
        for expected in [true, true, true, false] {
            let mut slot = slots.reserve(true).await.unwrap();
            assert_eq!(slot.charge_to(account), expected);
            if expected {
                taken.push(slot);
            }
        }
        assert!(slots.reserve(true).await.unwrap().charge_to(AccountId::generate(&System)));
        drop(newcomers);
        assert!(slots.reserve(false).await.is_some());
    }
}
