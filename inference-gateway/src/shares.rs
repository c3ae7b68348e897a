//! Shares of accounts in what all of them use together: no single account takes all of it.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use shared::ids::AccountId;

/// The shares that accounts have taken, each of at most `most`. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AccountShares(Arc<Shares>);

struct Shares {
    most: usize,
    taken: Mutex<HashMap<AccountId, usize>>,
}

/// One unit of an account's share, given back when it is dropped.
pub(crate) struct Unit {
    shares: AccountShares,
    account: AccountId,
}

impl AccountShares {
    /// No shares taken yet.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Shares { most, taken: Mutex::default() }))
    }

    /// Takes so much more of an account's share, and returns whether it had that much left.
    pub(crate) fn take(&self, account: AccountId, amount: usize) -> bool {
        let mut taken = self.taken();
        let before = taken.get(&account).copied().unwrap_or(0);
        let fits = before.checked_add(amount).filter(|after| *after <= self.0.most);
        if let Some(after) = fits {
            taken.insert(account, after);
        }
        fits.is_some()
    }

    /// Takes one unit, if the account has one left.
    pub(crate) fn unit(&self, account: AccountId) -> Option<Unit> {
        self.take(account, 1).then(|| Unit { shares: self.clone(), account })
    }

    /// Gives so much back.
    pub(crate) fn give_back(&self, account: AccountId, amount: usize) {
        let mut taken = self.taken();
        if let Some(share) = taken.get_mut(&account) {
            *share = share.saturating_sub(amount);
            // Accounts that use nothing are not kept.
            if *share == 0 {
                taken.remove(&account);
            }
        }
    }

    fn taken(&self) -> MutexGuard<'_, HashMap<AccountId, usize>> {
        self.0.taken.lock()
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.shares.give_back(self.account, 1);
    }
}

#[cfg(test)]
mod tests {
    use shared::clock::System;

    use super::*;

    #[test]
    fn an_account_takes_its_share_and_no_more_whatever_others_take() {
        let (one, other) = (AccountId::generate(&System), AccountId::generate(&System));
        let shares = AccountShares::new(2);
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
