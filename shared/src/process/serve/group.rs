//! Connections by owner, and the choice of connections that yield to others.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::connection::Connection;

/// Time without a request after which a connection yields ahead of older connections: a caller may be far away, or
/// slow.
const HESITATION: Duration = Duration::from_secs(1);
/// Number of connections that does not count against an owner: a caller may open a few at once, beside thousands of
/// unauthenticated addresses with a connection each.
const FEW: usize = 4;
/// Search limit for a silent connection of an address.
const LOOKED_THROUGH: usize = 256;
/// Bits of an IPv6 address that name a subscriber's network; the rest is that network's own.
const NETWORK_BITS: u32 = 64;

/// The network address that a caller without a credential is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpAddr);

impl Network {
    /// The network of a machine at this address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.into()),
            IpAddr::V6(address) => {
                let mask = u128::MAX << (128 - NETWORK_BITS);
                Self(Ipv6Addr::from_bits(address.to_bits() & mask).into())
            }
        }
    }
}

/// Connections by owner, the oldest of each owner first.
pub(super) struct Group<O> {
    owners: HashMap<O, BTreeMap<u64, Arc<Connection>>>,
    count: usize,
}

impl<O> Default for Group<O> {
    fn default() -> Self {
        Self { owners: HashMap::new(), count: 0 }
    }
}

impl<O: Copy + Eq + Hash> Group<O> {
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    pub(super) fn contains(&self, owner: O, number: u64) -> bool {
        self.owners.get(&owner).is_some_and(|connections| connections.contains_key(&number))
    }

    pub(super) fn insert(&mut self, owner: O, connection: Arc<Connection>) {
        let before = self.owners.entry(owner).or_default().insert(connection.number, connection);
        self.count += usize::from(before.is_none());
    }

    pub(super) fn remove(&mut self, owner: O, number: u64) -> Option<Arc<Connection>> {
        let connections = self.owners.get_mut(&owner)?;
        let removed = connections.remove(&number);
        if connections.is_empty() {
            self.owners.remove(&owner);
        }
        self.count -= usize::from(removed.is_some());
        removed
    }

    /// Removes the oldest connection of the owner with the most, a silent connection first. Among owners with as
    /// many, or with a few, the owner of the oldest connection yields.
    pub(super) fn take_oldest_of_most(&mut self) -> Option<Arc<Connection>> {
        let rank = |connections: &BTreeMap<u64, Arc<Connection>>| {
            (connections.len().max(FEW), connections.first_key_value().map(|(oldest, _)| Reverse(*oldest)))
        };
        let (owner, connections) = self.owners.iter().max_by_key(|(_, connections)| rank(connections))?;
        let now = Instant::now();
        let mut oldest = connections.values().take(LOOKED_THROUGH);
        let silent = oldest.find(|connection| connection.is_silent_for(HESITATION, now));
        let number = silent.or_else(|| connections.values().next())?.number;
        self.remove(*owner, number)
    }

    /// Removes the longest idle connection of the owner with the most connections, among owners with an idle
    /// connection.
    pub(super) fn take_idle_of_most(&mut self) -> Option<Arc<Connection>> {
        let longest_idle = |(owner, connections): (&O, &BTreeMap<u64, Arc<Connection>>)| {
            let idle = connections
                .values()
                .filter_map(|connection| Some((connection.idle_since()?, connection.number)));
            let (since, number) = idle.min()?;
            Some((Reverse(connections.len()), since, number, *owner))
        };
        let candidates = self.owners.iter().filter_map(longest_idle);
        let (_, _, number, owner) =
            candidates.min_by_key(|(count, since, number, _)| (*count, *since, *number))?;
        self.remove(owner, number)
    }

    /// Removes connections that carry such a load together: again and again the busiest of the owner with the largest load.
    pub(super) fn take_busiest(&mut self, load: usize) -> Vec<Arc<Connection>> {
        // Each owner's connections, the busiest last.
        let mut owners = Vec::new();
        for (owner, connections) in &self.owners {
            let mut busy: Vec<_> =
                connections.values().map(|connection| (connection.load(), connection.number)).collect();
            busy.sort_unstable();
            owners.push((busy.iter().map(|(load, _)| load).sum::<usize>(), *owner, busy));
        }
        let (mut taken, mut evicted) = (0, Vec::new());
        while taken < load {
            let Some((all, owner, busy)) = owners.iter_mut().max_by_key(|(all, ..)| *all) else { break };
            let Some((carried, number)) = busy.pop() else { break };
            *all -= carried;
            taken += carried;
            evicted.extend(self.remove(*owner, number));
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, pause};

    use super::{
        super::{Bounds, admission::Admission},
        *,
    };

    #[tokio::test]
    async fn a_connection_that_hesitates_is_not_taken_for_a_silent_one() {
        pause();
        let admission = Admission::new(&Bounds::default());
        let mut group = Group::default();
        let places: Vec<_> = (0..3).map(|_| admission.admit(IpAddr::from([192, 0, 2, 1]))).collect();
        for place in &places {
            place.0.note_silence();
            group.insert(place.0.network, place.0.clone());
        }
        let oldest = places[0].0.begin_request(0);
        assert_eq!(group.take_oldest_of_most().map(|taken| taken.number), Some(places[0].0.number));
        advance(HESITATION).await;
        let older = places[1].0.begin_request(0);
        assert_eq!(group.take_oldest_of_most().map(|taken| taken.number), Some(places[2].0.number));
        drop((oldest, older));
    }

    #[tokio::test]
    async fn a_few_connections_of_one_owner_yield_by_age_to_many_owners_with_one() {
        let admission = Admission::new(&Bounds::default());
        let mut group = Group::default();
        let of = |machine: u8| admission.admit(IpAddr::from([192, 0, 2, machine]));
        let mut places: Vec<_> = (10..20).map(of).collect();
        places.extend((0..FEW).map(|_| of(1)));
        places.extend((20..30).map(of));
        for place in &places {
            group.insert(place.0.network, place.0.clone());
        }
        let taken: Vec<_> = (0..10).filter_map(|_| group.take_oldest_of_most()).map(|it| it.number).collect();
        assert_eq!(taken, places[..10].iter().map(|place| place.0.number).collect::<Vec<_>>());
        // One more than a few, and its owner yields.
        let more: Vec<_> = (0..=FEW).map(|_| of(2)).collect();
        for place in &more {
            group.insert(place.0.network, place.0.clone());
        }
        assert_eq!(group.take_oldest_of_most().map(|taken| taken.number), Some(more[0].0.number));
    }

    #[test]
    fn a_network_is_an_address_of_version_4_or_the_first_half_of_one_of_version_6() {
        let network = |address: &str| Network::of(address.parse().unwrap());
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
    }
}
