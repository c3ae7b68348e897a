//! Divides a quota among owners. There is a total and a share for each owner, and waiting callers take turns.

use std::collections::VecDeque;

use foldhash::HashMap;

use super::owner::Owner;

/// Units in use, and the callers that wait for units. `W` is the type of a waiting caller.
pub(super) struct QuotaState<W> {
    total: usize,
    /// Maximum number of units that a single owner may have.
    per_owner: usize,
    taken: usize,
    /// For each owner whose share is less than the total, the number of units that the owner has.
    owned: HashMap<Owner, usize>,
    waiting: HashMap<Owner, VecDeque<QuotaWaiter<W>>>,
    /// Owners that have waiting callers, in the order in which it is their turn.
    order: VecDeque<Owner>,
}

struct QuotaWaiter<W> {
    amount: usize,
    waiter: W,
}

/// Units granted to a waiting caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Granted<W> {
    pub(super) owner: Owner,
    pub(super) amount: usize,
    pub(super) waiter: W,
}

impl<W> QuotaState<W> {
    /// Makes a quota of `total` units, of which a single owner may have `per_owner`.
    pub(super) fn new(total: usize, per_owner: usize) -> Self {
        Self {
            total,
            per_owner: per_owner.min(total),
            taken: 0,
            owned: HashMap::default(),
            waiting: HashMap::default(),
            order: VecDeque::new(),
        }
    }

    /// Returns the maximum number of units that this owner may ever have.
    pub(super) const fn most_of(&self, owner: Owner) -> usize {
        match owner {
            Owner::Network(_) | Owner::Account(_) => self.per_owner,
            Owner::Service => self.total,
        }
    }

    /// Takes units for an owner. If too few are left of the total or of the owner's share, returns false and takes
    /// nothing.
    pub(super) fn take(&mut self, owner: Owner, amount: usize) -> bool {
        let fits = self.fits(owner, amount);
        if fits {
            self.add(owner, amount);
        }
        fits
    }

    /// Puts a caller at the end of its owner's queue. Owners take turns, however many callers wait in each queue.
    pub(super) fn wait(&mut self, owner: Owner, amount: usize, waiter: W) {
        let Self { waiting, order, .. } = self;
        let callers = waiting.entry(owner).or_insert_with(|| {
            order.push_back(owner);
            VecDeque::new()
        });
        callers.push_back(QuotaWaiter { amount, waiter });
    }

    /// Releases units. Returns the callers whose turn has come.
    pub(super) fn give_back(&mut self, owner: Owner, amount: usize) -> Vec<Granted<W>> {
        self.taken -= amount;
        self.leave(owner, amount);
        self.next()
    }

    /// Moves units from the share of one owner to that of another. Returns the callers whose turn comes because of
    /// this. If the other owner's share has too few units left, changes nothing and returns `None`.
    pub(super) fn move_to(&mut self, from: Owner, to: Owner, amount: usize) -> Option<Vec<Granted<W>>> {
        if from == to {
            return Some(Vec::new());
        }
        if amount > self.left_of(to) {
            return None;
        }
        self.leave(from, amount);
        self.join(to, amount);
        Some(self.next())
    }

    /// Grants units to waiting callers until no units are left. Owners take turns, and the callers of each owner are
    /// served in the order in which they came. A caller for whom too few units are left keeps its place in the queue.
    fn next(&mut self) -> Vec<Granted<W>> {
        let mut granted = Vec::new();
        let mut passed_over = 0;
        while passed_over < self.order.len() && self.taken < self.total {
            let Some(owner) = self.order.pop_front() else { break };
            let amount =
                self.waiting.get(&owner).and_then(|callers| callers.front()).map(|first| first.amount);
            let first = match amount {
                Some(amount) if self.fits(owner, amount) => self.pop(owner),
                Some(_) | None => None,
            };
            if self.waiting.contains_key(&owner) {
                self.order.push_back(owner);
            }
            if let Some(QuotaWaiter { amount, waiter }) = first {
                self.add(owner, amount);
                granted.push(Granted { owner, amount, waiter });
                passed_over = 0;
            } else {
                passed_over += 1;
            }
        }
        granted
    }

    /// Removes the first waiting caller of an owner.
    fn pop(&mut self, owner: Owner) -> Option<QuotaWaiter<W>> {
        let callers = self.waiting.get_mut(&owner)?;
        let first = callers.pop_front();
        if callers.is_empty() {
            self.waiting.remove(&owner);
        }
        first
    }

    fn fits(&self, owner: Owner, amount: usize) -> bool {
        amount <= (self.total - self.taken).min(self.left_of(owner))
    }

    /// Returns how many units are left of an owner's share.
    fn left_of(&self, owner: Owner) -> usize {
        self.most_of(owner) - self.owned.get(&owner).copied().unwrap_or(0)
    }

    fn add(&mut self, owner: Owner, amount: usize) {
        self.taken += amount;
        self.join(owner, amount);
    }

    fn join(&mut self, owner: Owner, amount: usize) {
        // If a share is as large as the total, the units in it need not be counted.
        if amount > 0 && self.most_of(owner) < self.total {
            *self.owned.entry(owner).or_default() += amount;
        }
    }

    fn leave(&mut self, owner: Owner, amount: usize) {
        if let Some(owned) = self.owned.get_mut(&owner) {
            *owned -= amount;
            // An owner without units is removed.
            if *owned == 0 {
                self.owned.remove(&owner);
            }
        }
    }
}

#[cfg(test)]
mod tests;
