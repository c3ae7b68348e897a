//! Chooses which connections are closed to make room for others, by fairness and age. A pure function of a snapshot of
//! the connections.

use std::{cmp::Reverse, time::Duration};

use super::owner::Owner;

/// How long a connection may carry no request before it is closed ahead of older ones. Callers may be far away or slow.
const HESITATION: Duration = Duration::from_secs(1);
/// Number of connections that an owner may have without being the first to lose one. A caller may open a few at once,
/// while thousands of unauthenticated addresses have one each.
const FEW: usize = 4;
/// How many of an owner's connections to search for a silent one.
const LOOKED_THROUGH: usize = 256;

/// Snapshot of a connection at the moment of the choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    /// Position in the order in which connections were opened.
    pub(crate) number: u64,
    /// How long there has been no request; `None` while there is one.
    pub(crate) idle: Option<Duration>,
    /// Everything that the client has sent was read.
    pub(crate) read: bool,
    /// Weight of the connection's requests.
    pub(crate) load: usize,
}

/// Connections by owner, read only as far as a choice needs.
pub(crate) trait Connections {
    /// Returns the owners, each with its number of connections and the number of its oldest.
    fn owners(&self) -> impl Iterator<Item = (Owner, usize, u64)>;

    /// Returns the connections of an owner, oldest first.
    fn of(&self, owner: Owner) -> impl Iterator<Item = Snapshot>;
}

/// The bound that all connections together exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedBound {
    /// One connection too many: one must be closed.
    Connections,
    /// One connection too many, which may only replace an idle one.
    IdleConnections,
    /// Too much load, by this amount.
    Load(usize),
}

/// Chooses connections to close so that the bound is kept. Returns each with its owner.
pub(crate) fn choose(connections: &impl Connections, passed: PassedBound) -> Vec<(Owner, u64)> {
    match passed {
        PassedBound::Connections => Vec::from_iter(oldest_of_most(connections)),
        PassedBound::IdleConnections => Vec::from_iter(longest_idle_of_most(connections)),
        PassedBound::Load(excess) => busiest(connections, excess),
    }
}

/// Finds the oldest connection of the owner with the most connections, preferring silent ones. If several owners have
/// the same number, or all have few, the owner of the oldest connection loses it.
fn oldest_of_most(connections: &impl Connections) -> Option<(Owner, u64)> {
    let rank = |(_, count, oldest): &(Owner, usize, u64)| ((*count).max(FEW), Reverse(*oldest));
    let (owner, _, oldest) = connections.owners().max_by_key(rank)?;
    let silent = |it: &Snapshot| it.read && it.idle.is_some_and(|idle| idle >= HESITATION);
    let silent = connections.of(owner).take(LOOKED_THROUGH).find(silent);
    Some((owner, silent.map_or(oldest, |it| it.number)))
}

/// Finds the longest-idle connection of the owner with the most connections, among owners with an idle one.
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

/// Finds connections that together carry `excess`: repeatedly the busiest one of the owner with the largest load.
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
