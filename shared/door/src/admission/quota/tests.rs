use std::{collections::HashMap, net::IpAddr};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::admission::Network;

const OWNERS: usize = 4;

/// Returns one of three networks, or the installation itself.
fn owner(number: usize) -> Owner {
    match u8::try_from(number) {
        Ok(number @ 1..) => Owner::Network(Network::of(IpAddr::from([192, 0, 2, number]))),
        Ok(0) | Err(_) => Owner::Service,
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(usize, usize),
    Wait(usize, usize),
    GiveBack(usize),
    Move(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (owner, amount) = (0..OWNERS, 0..9_usize);
    prop_oneof![
        (owner.clone(), amount.clone()).prop_map(|(owner, amount)| Step::Take(owner, amount)),
        (owner.clone(), amount).prop_map(|(owner, amount)| Step::Wait(owner, amount)),
        any::<usize>().prop_map(Step::GiveBack),
        (any::<usize>(), owner).prop_map(|(permit, owner)| Step::Move(permit, owner)),
    ]
}

/// A quota, and the permits that it gave out.
struct Model {
    quota: QuotaState<usize>,
    per_owner: usize,
    total: usize,
    permits: Vec<(Owner, usize)>,
    waiting: HashMap<usize, (Owner, usize)>,
}

impl Model {
    fn new(total: usize, per_owner: usize) -> Self {
        let quota = QuotaState::new(total, per_owner);
        Self { quota, per_owner, total, permits: Vec::new(), waiting: HashMap::new() }
    }

    fn of(&self, owner: Owner) -> usize {
        self.permits.iter().filter(|(other, _)| *other == owner).map(|(_, amount)| amount).sum()
    }

    fn left_of(&self, owner: Owner) -> usize {
        let taken: usize = self.permits.iter().map(|(_, amount)| amount).sum();
        let share = if owner == Owner::Service { usize::MAX } else { self.per_owner - self.of(owner) };
        (self.total - taken).min(share)
    }

    fn must_wait(&self, owner: Owner, amount: usize) -> bool {
        amount > self.left_of(owner) && amount <= self.quota.most_of(owner)
    }

    fn granted(&mut self, granted: Vec<Granted<usize>>) {
        for Granted { owner, amount, waiter } in granted {
            assert_eq!(self.waiting.remove(&waiter), Some((owner, amount)), "each is served once");
            self.permits.push((owner, amount));
        }
    }

    fn step(&mut self, number: usize, step: Step) {
        match step {
            Step::Take(from, amount) => {
                let fits = amount <= self.left_of(owner(from));
                assert_eq!(self.quota.take(owner(from), amount), fits);
                self.permits.extend(fits.then_some((owner(from), amount)));
            }
            Step::Wait(from, amount) if self.must_wait(owner(from), amount) => {
                self.quota.wait(owner(from), amount, number);
                self.waiting.insert(number, (owner(from), amount));
            }
            Step::GiveBack(permit) if !self.permits.is_empty() => {
                let (from, amount) = self.permits.swap_remove(permit % self.permits.len());
                let granted = self.quota.give_back(from, amount);
                self.granted(granted);
            }
            Step::Move(permit, to) if !self.permits.is_empty() => {
                let permit = permit % self.permits.len();
                let (from, amount) = self.permits[permit];
                let (to, left) = (owner(to), self.per_owner.saturating_sub(self.of(owner(to))));
                let fits = from == to || to == Owner::Service || amount <= left;
                let granted = self.quota.move_to(from, to, amount);
                assert_eq!(granted.is_some(), fits);
                if let Some(granted) = granted {
                    self.permits[permit].0 = to;
                    self.granted(granted);
                }
            }
            Step::Wait(..) | Step::GiveBack(_) | Step::Move(..) => {}
        }
        for from in (0..OWNERS).map(owner) {
            let first =
                self.waiting.iter().filter(|(_, (other, _))| *other == from).min_by_key(|(at, _)| **at);
            assert!(
                first.is_none_or(|(_, (_, amount))| *amount > self.left_of(from)),
                "{from:?} waits in vain"
            );
        }
    }
}

proptest! {
    #[test]
    fn no_owner_passes_its_share_and_no_caller_waits_for_what_is_free(
        total in 1..20_usize, per_owner in 1..20_usize, steps in vec(step(), 0..200)
    ) {
        let mut model = Model::new(total, per_owner.min(total));
        for (number, step) in steps.into_iter().enumerate() {
            model.step(number, step);
        }
        while let Some((from, amount)) = model.permits.pop() {
            let granted = model.quota.give_back(from, amount);
            model.granted(granted);
        }
        prop_assert!(model.waiting.is_empty() && model.quota.owned.is_empty() && model.quota.taken == 0);
    }

    #[test]
    fn owners_take_turns_however_many_callers_of_each_wait(callers in vec(1..OWNERS, 0..60)) {
        let mut quota = QuotaState::new(1, 1);
        prop_assert!(quota.take(owner(0), 1));
        for (number, from) in callers.iter().enumerate() {
            quota.wait(owner(*from), 1, number);
        }
        let (mut last, mut served) = (owner(0), Vec::new());
        while let Some(granted) = quota.give_back(last, 1).pop() {
            last = granted.owner;
            served.push(granted);
        }
        prop_assert_eq!(served.len(), callers.len());
        for from in (1..OWNERS).map(owner) {
            let turns: Vec<_> = served.iter().filter(|it| it.owner == from).map(|it| it.waiter).collect();
            prop_assert!(turns.is_sorted(), "first come, first served");
            let between = served.split(|it| it.owner == from).rev().skip(1);
            prop_assert!(between.into_iter().all(|others| others.len() < OWNERS), "no one is passed over");
        }
    }
}
