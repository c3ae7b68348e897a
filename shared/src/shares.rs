//! Shares of owners in common resources: no single owner takes everything.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

/// The shares that owners have taken, each of at most `most`. Cheap to clone.
pub struct Shares<K>(Arc<Inner<K>>);

struct Inner<K> {
    most: usize,
    taken: Mutex<HashMap<K, usize>>,
}

/// A part of an owner's share, given back when dropped.
pub struct Unit<K: Copy + Eq + Hash> {
    shares: Shares<K>,
    owner: K,
    amount: usize,
}

impl<K> Clone for Shares<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Copy + Eq + Hash> Shares<K> {
    /// No shares taken yet.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner { most, taken: Mutex::default() }))
    }

    /// Takes `amount` of an owner's share, and returns whether that much was left.
    pub fn take(&self, owner: K, amount: usize) -> bool {
        let mut taken = self.taken();
        let before = taken.get(&owner).copied().unwrap_or(0);
        let fits = before.checked_add(amount).filter(|after| *after <= self.0.most);
        if let Some(after) = fits {
            taken.insert(owner, after);
        }
        fits.is_some()
    }

    /// Takes a unit of an owner's share, if any is left.
    pub fn unit(&self, owner: K) -> Option<Unit<K>> {
        self.units(owner, 1)
    }

    /// Takes `amount` units together, if the owner has that many left.
    pub fn units(&self, owner: K, amount: usize) -> Option<Unit<K>> {
        self.take(owner, amount).then(|| Unit { shares: self.clone(), owner, amount })
    }

    /// Gives so much back.
    pub fn give_back(&self, owner: K, amount: usize) {
        let mut taken = self.taken();
        if let Some(share) = taken.get_mut(&owner) {
            *share = share.saturating_sub(amount);
            // Owners that use nothing are not kept.
            if *share == 0 {
                taken.remove(&owner);
            }
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<K, usize>> {
        self.0.taken.lock()
    }
}

impl<K: Copy + Eq + Hash> Drop for Unit<K> {
    fn drop(&mut self) {
        self.shares.give_back(self.owner, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::System, ids::AccountId};

    #[test]
    fn an_account_takes_its_share_and_no_more_whatever_others_take() {
        let (one, other) = (AccountId::generate(&System), AccountId::generate(&System));
        let shares = Shares::new(2);
        let units = (shares.unit(one), shares.unit(one));
        assert!(units.0.is_some() && units.1.is_some() && shares.unit(one).is_none());
        assert!(shares.take(other, 2) && !shares.take(other, usize::MAX));
        drop(units.0);
        assert!(shares.unit(one).is_some());
        shares.give_back(other, 2);
        drop(units.1);
        assert!(shares.taken().is_empty());
    }
}
