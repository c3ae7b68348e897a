//! Choice of the connections that are closed for others: fairness and age, as a function of what connections do.

use std::{cmp::Reverse, time::Duration};

use super::Owner;

/// Time without a request after which a connection yields ahead of older connections: a caller may be far away, or
/// slow.
const HESITATION: Duration = Duration::from_secs(1);
/// Number of connections that does not count against an owner: a caller may open a few at once, beside thousands of
/// unauthenticated addresses with a connection each.
const FEW: usize = 4;
/// Search limit for a silent connection of an owner.
const LOOKED_THROUGH: usize = 256;

/// A connection at the time of a choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    /// Place in the order of connections, the oldest first.
    pub(crate) number: u64,
    /// Time without a request; `None` while the connection carries one.
    pub(crate) idle: Option<Duration>,
    /// True if everything that was sent was read.
    pub(crate) read: bool,
    /// Weight of the requests that the connection carries.
    pub(crate) load: usize,
}

/// Connections of owners, looked at as far as a choice needs.
pub(crate) trait Connections {
    /// The owners, each with its number of connections and the number of its oldest.
    fn owners(&self) -> impl Iterator<Item = (Owner, usize, u64)>;

    /// The connections of an owner, the oldest first.
    fn of(&self, owner: Owner) -> impl Iterator<Item = Snapshot>;
}

/// Bound that connections pass together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Connections, by one more than there may be: one is closed.
    Connections,
    /// Connections, by one that may only replace an idle one.
    IdleConnections,
    /// Load, by this much.
    Load(usize),
}

/// The connections to close, with their owners, so that the bound is kept.
pub(crate) fn choose(connections: &impl Connections, passed: Passed) -> Vec<(Owner, u64)> {
    match passed {
        Passed::Connections => Vec::from_iter(oldest_of_most(connections)),
        Passed::IdleConnections => Vec::from_iter(longest_idle_of_most(connections)),
        Passed::Load(excess) => busiest(connections, excess),
    }
}

/// The oldest connection of the owner with the most, a silent connection first. Among owners with as many, or with a
/// few, the owner of the oldest connection yields.
fn oldest_of_most(connections: &impl Connections) -> Option<(Owner, u64)> {
    let rank = |(_, count, oldest): &(Owner, usize, u64)| ((*count).max(FEW), Reverse(*oldest));
    let (owner, _, oldest) = connections.owners().max_by_key(rank)?;
    let silent = |it: &Snapshot| it.read && it.idle.is_some_and(|idle| idle >= HESITATION);
    let silent = connections.of(owner).take(LOOKED_THROUGH).find(silent);
    Some((owner, silent.map_or(oldest, |it| it.number)))
}

/// The longest idle connection of the owner with the most connections, among owners with an idle connection.
fn longest_idle_of_most(connections: &impl Connections) -> Option<(Owner, u64)> {
    let longest_idle = |(owner, count, _)| {
        let idle = connections.of(owner).filter_map(|it| Some((it.idle?, Reverse(it.number))));
        let (idle, number) = idle.max()?;
        Some((count, idle, number, owner))
    };
    let candidates = connections.owners().filter_map(longest_idle);
    let (.., Reverse(number), owner) =
        candidates.max_by_key(|(count, idle, number, _)| (*count, *idle, *number))?;
    Some((owner, number))
}

/// Connections that carry `excess` together: again and again the busiest of the owner with the largest load.
fn busiest(connections: &impl Connections, excess: usize) -> Vec<(Owner, u64)> {
    // Connections of each owner, the busiest last.
    let mut owners = Vec::new();
    for (owner, ..) in connections.owners() {
        let mut busy: Vec<_> = connections.of(owner).map(|it| (it.load, it.number)).collect();
        busy.sort_unstable();
        owners.push((busy.iter().map(|(load, _)| load).sum::<usize>(), owner, busy));
    }
    let (mut taken, mut chosen) = (0, Vec::new());
    while taken < excess {
        let most = owners.iter_mut().max_by_key(|(all, ..)| *all);
        let Some((all, owner, busy)) = most.filter(|(all, ..)| *all > 0) else { break };
        let Some((load, number)) = busy.pop() else { break };
        *all -= load;
        taken += load;
        chosen.push((*owner, number));
    }
    chosen
}

#[cfg(test)]
mod tests;
