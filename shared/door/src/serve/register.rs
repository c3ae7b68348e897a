//! The connections of a port. Every new connection is admitted. If there are too many, another connection is closed.
//!
//! Unauthenticated connections have limits of their own, on their number and on their requests. If there are too many
//! connections, the network address that has the most connections loses one: its oldest silent connection or, if none
//! is silent, its oldest connection. If there are too many requests, the address that has the most requests loses the
//! connections that carry most of these requests. So unauthenticated callers compete only with each other, and a greedy
//! caller competes with itself. Authenticated connections share what is left. If there are too many authenticated
//! connections, the account that has the most connections loses the connection that has been idle longest.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::{
    bounds::Bounds,
    connection::{Connection, ConnectionReport},
};
use crate::admission::{Connections, Network, Owner, PassedBound, Snapshot, choose};

/// Number of requests that each side may carry in addition to two for each connection. A request with a large head
/// counts as several. The number is so large that a few clients may have many requests each.
const REQUESTS_IN_ANY_CASE: usize = 4096;
/// An overloaded side closes connections until its load is below the permitted load by this fraction (one sixteenth).
/// Choosing connections takes time, so it should not be necessary after every request.
const RELIEVED_PART: usize = 16;

/// The open connections of a port.
pub(super) struct Register {
    unauthenticated: Side,
    authenticated: Side,
    arriving: TaskTracker,
    next: AtomicU64,
}

/// One of the two sides of a port: its authenticated or its unauthenticated connections, and the load of their
/// requests.
struct Side {
    most_connections: usize,
    most_load: usize,
    load: AtomicUsize,
    /// This lock must be taken before the lock of a connection's state. If both sides are locked, the unauthenticated
    /// side is locked first.
    connections: Mutex<ByOwner>,
}

/// Connections by their owner. For each owner, the oldest connection comes first.
#[derive(Default)]
struct ByOwner {
    owners: HashMap<Owner, BTreeMap<u64, Arc<Connection>>>,
    count: usize,
}

/// Connections by their owner, as they are at this instant.
struct At<'a>(&'a ByOwner, Instant);

/// Keeps a connection registered until this is dropped.
pub(super) struct Registration(pub(super) Arc<Connection>, Arc<Register>);

impl Register {
    pub(super) fn new(bounds: &Bounds, arriving: TaskTracker) -> Arc<Self> {
        let unauthenticated = bounds.unauthenticated.min(bounds.connections).max(1);
        Arc::new(Self {
            unauthenticated: Side::new(unauthenticated, 0),
            authenticated: Side::new(bounds.connections.saturating_sub(unauthenticated), bounds.requests),
            arriving,
            next: AtomicU64::new(0),
        })
    }

    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Registration {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (network, arriving) = (Network::of(peer), self.arriving.token());
        let connection = Connection::new(number, network, self.clone(), arriving, Instant::now());
        let connection = Arc::new(connection);
        let mut connections = self.unauthenticated.connections.lock();
        connections.insert(connection.owner(), connection.clone());
        if connections.count > self.unauthenticated.most_connections {
            self.evict(&mut connections, PassedBound::Connections, "unauthenticated");
        }
        drop(connections);
        Registration(connection, self.clone())
    }

    /// Closes connections until the limit that was exceeded is kept. Returns the number of closed connections.
    fn evict(&self, connections: &mut ByOwner, passed: PassedBound, label: &'static str) -> usize {
        let chosen = choose(&At(connections, Instant::now()), passed);
        for (owner, number) in &chosen {
            metrics::counter!("http_connections_evicted_total", "of" => label).increment(1);
            if let Some(connection) = connections.remove(*owner, *number) {
                let (trusted, load) = connection.evict();
                self.unloaded(trusted, load);
            }
        }
        chosen.len()
    }

    fn side(&self, trusted: bool) -> &Side {
        if trusted { &self.authenticated } else { &self.unauthenticated }
    }
}

impl ConnectionReport for Register {
    fn loaded(&self, trusted: bool, weight: usize) {
        let side = self.side(trusted);
        if side.load.fetch_add(weight, Ordering::Relaxed) + weight > side.most_load {
            let mut connections = side.connections.lock();
            if let Some(excess) = side.excess() {
                self.evict(&mut connections, PassedBound::Load(excess), "busiest");
            }
        }
    }

    fn unloaded(&self, trusted: bool, weight: usize) {
        self.side(trusted).load.fetch_sub(weight, Ordering::Relaxed);
    }

    /// Moves a connection to the authenticated side. If that side is full and none of its connections is idle, the
    /// connection stays on the unauthenticated side.
    fn trusted(&self, connection: &Arc<Connection>, owner: Owner) {
        let mut others = self.unauthenticated.connections.lock();
        let mut connections = self.authenticated.connections.lock();
        let most = self.authenticated.most_connections;
        let network = Owner::Network(connection.network);
        // The connection may have been evicted meanwhile.
        if most == 0 || !others.contains(network, connection.number) {
            return;
        }
        if connections.count >= most
            && self.evict(&mut connections, PassedBound::IdleConnections, "authenticated") == 0
        {
            return;
        }
        others.remove(network, connection.number);
        connections.insert(owner, connection.clone());
        let load = connection.become_trusted(owner);
        self.unauthenticated.load.fetch_sub(load, Ordering::Relaxed);
        self.authenticated.load.fetch_add(load, Ordering::Relaxed);
    }
}

impl Side {
    fn new(most_connections: usize, more_requests: usize) -> Self {
        let most_load = 2 * most_connections + REQUESTS_IN_ANY_CASE + more_requests;
        Self { most_connections, most_load, load: AtomicUsize::new(0), connections: Mutex::default() }
    }

    /// Returns by how much load the side must be relieved, if it is overloaded. This includes a margin.
    fn excess(&self) -> Option<usize> {
        let load = self.load.load(Ordering::Relaxed);
        (load > self.most_load).then(|| load - (self.most_load - self.most_load / RELIEVED_PART))
    }
}

impl ByOwner {
    fn contains(&self, owner: Owner, number: u64) -> bool {
        self.owners.get(&owner).is_some_and(|connections| connections.contains_key(&number))
    }

    fn insert(&mut self, owner: Owner, connection: Arc<Connection>) {
        let before = self.owners.entry(owner).or_default().insert(connection.number, connection);
        self.count += usize::from(before.is_none());
    }

    fn remove(&mut self, owner: Owner, number: u64) -> Option<Arc<Connection>> {
        let connections = self.owners.get_mut(&owner)?;
        let removed = connections.remove(&number);
        if connections.is_empty() {
            self.owners.remove(&owner);
        }
        self.count -= usize::from(removed.is_some());
        removed
    }
}

impl Connections for At<'_> {
    fn owners(&self) -> impl Iterator<Item = (Owner, usize, u64)> {
        self.0.owners.iter().filter_map(|(owner, connections)| {
            let (oldest, _) = connections.first_key_value()?;
            Some((*owner, connections.len(), *oldest))
        })
    }

    fn of(&self, owner: Owner) -> impl Iterator<Item = Snapshot> {
        let connections = self.0.owners.get(&owner);
        connections.into_iter().flat_map(|all| all.values().map(|connection| connection.snapshot(self.1)))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Self(connection, register) = self;
        // Until the unauthenticated side is locked, the connection's owner may still change.
        let mut others = register.unauthenticated.connections.lock();
        match connection.owner() {
            network @ Owner::Network(_) => others.remove(network, connection.number),
            owner @ (Owner::Account(_) | Owner::Service) => {
                register.authenticated.connections.lock().remove(owner, connection.number)
            }
        };
    }
}

#[cfg(test)]
mod tests;
