//! Chooses which connections are closed to make room for others: by how many connections or how much load each owner
//! has, and by how long the connections have been open or idle. The choice depends only on a snapshot of the
//! connections.

use std::{cmp::Reverse, time::Duration};

use super::owner::Owner;

/// After this time without a request, a connection counts as silent, and is closed before older connections that are in
/// use. Callers may be far away or slow, so the time is not zero.
const HESITATION: Duration = Duration::from_secs(1);
/// Owners with this many connections or fewer are treated alike when one must be closed. Otherwise, while thousands of
/// unauthenticated addresses have one connection each, a caller who opens a few at once would always lose one.
const FEW: usize = 4;
/// How many of an owner's connections, the oldest first, are searched for a silent connection.
const LOOKED_THROUGH: usize = 256;

/// A connection at the moment of the choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Snapshot {
    /// Position in the order in which connections were opened.
    pub(crate) number: u64,
    /// How long the connection has carried no request; `None` while it carries one.
    pub(crate) idle: Option<Duration>,
    /// Whether everything that the client has sent so far was read.
    pub(crate) read: bool,
    /// Weight of all requests on the connection.
    pub(crate) load: usize,
}

/// Connections by owner. A choice reads only what it needs.
pub(crate) trait Connections {
    /// Returns each owner, with the number of its connections and the position of its oldest connection.
    fn owners(&self) -> impl Iterator<Item = (Owner, usize, u64)>;

    /// Returns the connections of an owner, the oldest first.
    fn of(&self, owner: Owner) -> impl Iterator<Item = Snapshot>;
}

/// The limit that the connections together exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassedBound {
    /// There is one connection too many, and one must be closed.
    Connections,
    /// There is one connection too many, and only an idle connection may be closed for it.
    IdleConnections,
    /// The load is too high by this amount.
    Load(usize),
}

/// Chooses the connections to close so that the limit is kept again. Returns each with its owner.
pub(crate) fn choose(connections: &impl Connections, passed: PassedBound) -> Vec<(Owner, u64)> {
    match passed {
        PassedBound::Connections => Vec::from_iter(oldest_of_most(connections)),
        PassedBound::IdleConnections => Vec::from_iter(longest_idle_of_most(connections)),
        PassedBound::Load(excess) => busiest(connections, excess),
    }
}

/// Finds the owner that has the most connections, and returns its oldest silent connection or, if none is silent, its
/// oldest connection. If several owners have equally many connections, or if all have only a few, the owner of the
/// oldest connection is chosen.
fn oldest_of_most(connections: &impl Connections) -> Option<(Owner, u64)> {
    let rank = |(_, count, oldest): &(Owner, usize, u64)| ((*count).max(FEW), Reverse(*oldest));
    let (owner, _, oldest) = connections.owners().max_by_key(rank)?;
    let silent = |it: &Snapshot| it.read && it.idle.is_some_and(|idle| idle >= HESITATION);
    let silent = connections.of(owner).take(LOOKED_THROUGH).find(silent);
    Some((owner, silent.map_or(oldest, |it| it.number)))
}

/// Finds, among the owners that have an idle connection, the owner that has the most connections. Returns the
/// connection of this owner that has been idle longest.
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

/// Finds connections that together carry at least `excess`. At every step, takes the busiest connection of the owner
/// that has the largest load at that point.
fn busiest(connections: &impl Connections, excess: usize) -> Vec<(Owner, u64)> {
    // For each owner, its load and its connections, the busiest last.
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
