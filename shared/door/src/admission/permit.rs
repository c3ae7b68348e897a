//! Quotas, the permits that callers have, and the queues in which callers wait for a permit.

use std::{mem, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    owner::Owner,
    quota::{Granted, QuotaState},
};

/// A limited number of units (requests or bytes) that owners share. Cheap to clone.
#[derive(Clone)]
pub struct Quota(Arc<Mutex<QuotaState<oneshot::Sender<Permit>>>>);

/// Units of a quota. They are released when this is dropped.
pub struct Permit {
    quota: Quota,
    owner: Owner,
    amount: usize,
}

/// Bytes, together with the permit that counts them for as long as they are in use.
struct CountedBytes {
    bytes: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Quota {
    /// Makes a quota of `total` units, of which a single network or account may have `per_owner`.
    pub fn new(total: usize, per_owner: usize) -> Self {
        Self(Arc::new(Mutex::new(QuotaState::new(total, per_owner))))
    }

    /// Takes units if enough are left of the total and of the owner's share.
    pub fn try_take(&self, owner: Owner, amount: usize) -> Option<Permit> {
        let taken = self.0.lock().take(owner, amount);
        taken.then(|| self.permit(owner, amount))
    }

    /// Takes units. If too few are left, waits until it is the owner's turn. Returns `None` at the deadline, or at once
    /// if the owner may never have that many units.
    pub async fn wait(&self, owner: Owner, amount: usize, deadline: Instant) -> Option<Permit> {
        let granted = {
            let mut state = self.0.lock();
            if state.take(owner, amount) {
                drop(state);
                return Some(self.permit(owner, amount));
            }
            if amount > state.most_of(owner) {
                return None;
            }
            let (sender, granted) = oneshot::channel();
            state.wait(owner, amount, sender);
            granted
        };
        timeout_at(deadline, granted).await.ok()?.ok()
    }

    /// Makes a permit without units.
    pub fn empty_permit(&self, owner: Owner) -> Permit {
        self.permit(owner, 0)
    }

    fn permit(&self, owner: Owner, amount: usize) -> Permit {
        Permit { quota: self.clone(), owner, amount }
    }

    fn give_back(&self, owner: Owner, amount: usize) {
        let granted = self.0.lock().give_back(owner, amount);
        self.hand_out(granted);
    }

    /// Gives permits to the callers whose turn has come. If a caller no longer waits, its units go to the next caller.
    fn hand_out(&self, mut granted: Vec<Granted<oneshot::Sender<Permit>>>) {
        while let Some(Granted { owner, amount, waiter }) = granted.pop() {
            if let Err(mut refused) = waiter.send(self.permit(owner, amount)) {
                granted.extend(self.0.lock().give_back(owner, mem::take(&mut refused.amount)));
            }
        }
    }
}

impl Permit {
    pub const fn amount(&self) -> usize {
        self.amount
    }

    pub const fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the maximum number of units that the owner may ever have.
    pub fn most(&self) -> usize {
        self.quota.0.lock().most_of(self.owner)
    }

    /// Takes more units. Returns false if too few are left of the total or of the owner's share.
    pub fn try_grow(&mut self, more: usize) -> bool {
        let taken = self.quota.0.lock().take(self.owner, more);
        if taken {
            self.amount += more;
        }
        taken
    }

    /// Takes more units. If too few are left, waits until it is the owner's turn. Returns whether the units were
    /// available before the deadline.
    pub async fn grow_until(&mut self, more: usize, deadline: Instant) -> bool {
        let grown = self.quota.wait(self.owner, more, deadline).await;
        if let Some(mut grown) = grown {
            self.amount += mem::take(&mut grown.amount);
            return true;
        }
        false
    }

    /// Releases all but `amount` units.
    pub fn shrink_to(&mut self, amount: usize) {
        let over = self.amount.saturating_sub(amount);
        if over > 0 {
            self.amount -= over;
            self.quota.give_back(self.owner, over);
        }
    }

    /// Splits off a permit. The new permit gets `amount` units, or all if there are fewer.
    #[must_use]
    pub fn split(&mut self, amount: usize) -> Self {
        let amount = amount.min(self.amount);
        self.amount -= amount;
        self.quota.permit(self.owner, amount)
    }

    /// Attaches the permit to bytes. The permit is released when the last copy of the bytes is dropped.
    pub fn kept_by(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(CountedBytes { bytes, _permit: self })
    }

    /// Moves the units to the share of another owner. If that share has too few units left, returns false and changes
    /// nothing.
    pub fn move_to(&mut self, owner: Owner) -> bool {
        let granted = self.quota.0.lock().move_to(self.owner, owner, self.amount);
        let Some(granted) = granted else { return false };
        self.owner = owner;
        self.quota.hand_out(granted);
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, net::IpAddr, time::Duration};

    use futures_util::FutureExt;
    use shared::{clock::System, ids::AccountId};
    use tokio::time::sleep;

    use super::*;
    use crate::admission::owner::Network;

    fn account() -> Owner {
        Owner::Account(AccountId::generate(&System))
    }

    fn network(machine: u8) -> Owner {
        Owner::Network(Network::of(IpAddr::from([192, 0, 2, machine])))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(2)
    }

    #[test]
    fn permits_never_exceed_the_quota_and_give_all_of_it_back() {
        let quota = Quota::new(10, 10);
        let (mut one, mut other) =
            (quota.try_take(account(), 6).unwrap(), quota.try_take(account(), 4).unwrap());
        assert!(!other.try_grow(1) && !other.try_grow(usize::MAX));
        one.shrink_to(5);
        one.shrink_to(7);
        assert!(other.try_grow(1) && !other.try_grow(1));
        let part = one.split(3);
        assert_eq!((part.amount(), one.amount(), one.split(9).amount()), (3, 2, 2));
        assert!(quota.try_take(account(), 2).is_some() && quota.try_take(account(), 3).is_none());
        drop((one, other, part));
        assert!(quota.try_take(account(), 10).is_some());
    }

    #[test]
    fn an_account_leaves_room_for_others_and_a_request_of_an_unknown_payer_is_charged_once_its_payer_is_known()
     {
        let (one, other) = (account(), account());
        let quota = Quota::new(10, 6);
        let mut greedy = quota.try_take(one, 6).unwrap();
        assert!(!greedy.try_grow(1) && quota.try_take(one, 1).is_none());
        let mut unknown = quota.try_take(Owner::Service, 3).unwrap();
        assert!(!unknown.move_to(one) && unknown.owner() == Owner::Service);
        assert!(unknown.move_to(other) && quota.try_take(other, 4).is_none());
        greedy.shrink_to(2);
        drop(unknown);
        assert!(quota.try_take(other, 6).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_with_many_callers_leaves_every_other_turn_to_another() {
        let quota = Quota::new(1, 1);
        let mut running = quota.try_take(network(1), 1).unwrap();
        let mut many: VecDeque<_> = (0..1_000).map(|_| Box::pin(quota.wait(network(1), 1, soon()))).collect();
        let mut other = Box::pin(quota.wait(network(2), 1, soon()));
        assert!(many.iter_mut().all(|caller| caller.now_or_never().is_none()));
        assert!((&mut other).now_or_never().is_none());
        drop(many.pop_back());
        drop(running);
        running = many.pop_front().unwrap().await.unwrap();
        assert!((&mut other).now_or_never().is_none());
        drop(running);
        drop(other.await.unwrap());
        // All other callers get their turns. The caller that stopped waiting leaves its turn to the next.
        for caller in many {
            drop(caller.await.unwrap());
        }
        assert!(quota.try_take(network(3), 1).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_gives_up_in_time_and_takes_nothing_along() {
        let quota = Quota::new(2, 2);
        let running = quota.try_take(network(1), 1).unwrap();
        assert!(quota.wait(network(2), 2, soon()).await.is_none());
        let mut growing = quota.try_take(network(3), 1).unwrap();
        let leaves = async {
            sleep(Duration::from_secs(1)).await;
            drop(running);
        };
        let (grown, ()) = tokio::join!(growing.grow_until(1, soon()), leaves);
        assert!(grown && growing.amount() == 2);
        drop(growing);
        assert!(quota.try_take(network(2), 2).is_some());
    }
}
