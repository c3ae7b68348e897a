//! Bounds on bytes in memory: of all prompts, and of all answers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use shared::{
    error::{ApiError, Code},
    ids::AccountId,
};

use crate::shares::AccountShares;

/// Budget of bytes that requests share. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ByteBudget(Arc<Budget>);

struct Budget {
    most: usize,
    per_account: usize,
    taken: AtomicUsize,
    accounts: AccountShares,
}

/// Share of a request in the budget, returned by the drop.
pub(crate) struct BytePermit {
    shared: Arc<Budget>,
    taken: usize,
    /// The account whose share the bytes count against, if known.
    account: Option<AccountId>,
}

impl ByteBudget {
    /// A budget of `most` bytes, of which an account may take `per_account`.
    pub(crate) fn new(most: usize, per_account: usize) -> Self {
        let accounts = AccountShares::new(per_account);
        Self(Arc::new(Budget { most, per_account, taken: AtomicUsize::new(0), accounts }))
    }

    /// A permit for zero bytes.
    pub(crate) fn permit(&self) -> BytePermit {
        BytePermit { shared: self.0.clone(), taken: 0, account: None }
    }

    /// The most that an account may ever take.
    pub(crate) fn largest(&self) -> usize {
        self.0.per_account.min(self.0.most)
    }

    /// A permit for no bytes yet of an account.
    pub(crate) fn permit_of(&self, account: AccountId) -> BytePermit {
        BytePermit { shared: self.0.clone(), taken: 0, account: Some(account) }
    }
}

impl BytePermit {
    /// Adds bytes of a prompt to the permit. If the budget is exhausted, the error asks the client to try again later.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), ApiError> {
        if self.try_grow(bytes) {
            return Ok(());
        }
        metrics::counter!("gateway_prompts_without_room_total").increment(1);
        let message = "There is no room for a prompt of this size at the moment; try again shortly.";
        Err(ApiError::new(Code::Overloaded, message))
    }

    /// Takes `bytes` more, and returns true if the budget had as many.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> bool {
        let share = self.account.is_none_or(|account| self.shared.accounts.take(account, bytes));
        let fits = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.shared.most);
        if share && self.shared.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
            self.taken += bytes;
            return true;
        }
        if let (true, Some(account)) = (share, self.account) {
            self.shared.accounts.give_back(account, bytes);
        }
        false
    }

    /// Moves the taken bytes to another budget, and there to the share of an account.
    pub(crate) fn move_to(&mut self, budget: &ByteBudget, account: AccountId) -> Result<(), ApiError> {
        if Arc::ptr_eq(&self.shared, &budget.0) {
            return Ok(());
        }
        let mut moved = budget.permit_of(account);
        moved.grow(self.taken)?;
        *self = moved;
        Ok(())
    }

    /// The bytes taken.
    pub(crate) const fn taken(&self) -> usize {
        self.taken
    }

    /// Splits off a permit of at most `bytes`.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let taken = bytes.min(self.taken);
        self.taken -= taken;
        Self { shared: self.shared.clone(), taken, account: self.account }
    }

    /// Returns all but this many bytes to the budget.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let given_back = self.taken.saturating_sub(bytes);
        if given_back > 0 {
            self.shared.taken.fetch_sub(given_back, Ordering::Relaxed);
            self.taken -= given_back;
            if let Some(account) = self.account {
                self.shared.accounts.give_back(account, given_back);
            }
        }
    }
}

impl Drop for BytePermit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use shared::clock::System;

    use super::*;

    #[test]
    fn permits_never_exceed_the_budget_and_give_all_of_it_back() {
        let budget = ByteBudget::new(10, 10);
        let (mut one, mut other) = (budget.permit(), budget.permit());
        assert!(one.grow(6).is_ok() && other.grow(4).is_ok());
        assert_eq!(other.grow(1).unwrap_err().code, Code::Overloaded);
        assert!(other.grow(usize::MAX).is_err());
        one.shrink_to(5);
        one.shrink_to(7);
        assert!(other.grow(1).is_ok() && other.grow(1).is_err());
        let part = one.split(3);
        assert_eq!((part.taken(), one.taken(), one.split(9).taken()), (3, 2, 2));
        assert!(budget.permit().grow(2).is_ok() && budget.permit().grow(3).is_err());
        drop((one, other, part));
        assert!(budget.permit().grow(10).is_ok());
    }

    #[test]
    fn one_account_leaves_room_for_others() {
        let (one, other) = (AccountId::generate(&System), AccountId::generate(&System));
        let (strangers, budget) = (ByteBudget::new(8, 8), ByteBudget::new(10, 6));
        let mut greedy = budget.permit_of(one);
        assert!(greedy.try_grow(6) && !greedy.try_grow(1) && !budget.permit_of(one).try_grow(1));
        let mut small = strangers.permit();
        assert!(small.try_grow(4) && !strangers.permit().try_grow(5));
        assert!(small.move_to(&budget, other).is_ok());
        assert!(strangers.permit().try_grow(8) && !budget.permit_of(other).try_grow(1));
        greedy.shrink_to(0);
        drop(small);
        assert!(budget.permit_of(one).try_grow(6));
    }
}
