//! Slots for chat requests in flight, with bounds on the slots of an account and of unauthenticated callers.

use std::sync::Arc;

use shared::{ids::AccountId, process::serve::Network};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    shares::{AccountShares, Unit},
    turns::{Turn, Turns},
};

/// The part of all slots for requests on unauthenticated connections, until the requests are authorized.
const PART_OF_NEWCOMERS: usize = 4;

/// Slots for chat requests, shared by all workers.
pub(crate) struct Slots {
    free: Arc<Semaphore>,
    newcomers: Turns,
    accounts: AccountShares,
}

/// A place for a chat request, reserved before the hold is opened, so that taking on the obligation cannot fail.
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
    /// Until the request is authorized.
    newcomer: Option<Turn>,
    /// From then on.
    share: Option<Unit>,
    accounts: AccountShares,
}

impl Slots {
    /// Creates `slots` slots, of which an account may have at most `per_account`.
    pub(crate) fn new(slots: usize, per_account: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(slots)),
            newcomers: Turns::new((slots / PART_OF_NEWCOMERS).max(1)),
            accounts: AccountShares::new(per_account),
        })
    }

    /// A slot, if any is free. A request of an unauthenticated caller waits for a turn.
    pub(crate) async fn reserve(&self, stranger: Option<Network>) -> Option<Slot> {
        let newcomer = match stranger {
            Some(network) => Some(self.newcomers.wait(network).await.ok()?),
            None => None,
        };
        let slot = self.free.clone().try_acquire_owned().ok()?;
        Some(Slot { _permit: slot, newcomer, share: None, accounts: self.accounts.clone() })
    }
}

impl Slot {
    /// Counts the slot against the account that pays, and returns true if the account had a slot left.
    pub(crate) fn charge_to(&mut self, account: AccountId) -> bool {
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
        let stranger = Some(Network::of(std::net::IpAddr::from([192, 0, 2, 1])));
        let newcomers = [slots.reserve(stranger).await, slots.reserve(stranger).await];
        assert!(newcomers.iter().all(Option::is_some) && slots.reserve(stranger).await.is_none());
        let account = AccountId::generate(&System);
        let mut taken = Vec::new();
        for expected in [true, true, true, false] {
            let mut slot = slots.reserve(None).await.unwrap();
            assert_eq!(slot.charge_to(account), expected);
            if expected {
                taken.push(slot);
            }
        }
        assert!(slots.reserve(None).await.unwrap().charge_to(AccountId::generate(&System)));
        drop(newcomers);
        assert!(slots.reserve(stranger).await.is_some());
    }
}
