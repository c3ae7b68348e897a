//! Admission of connections: every new connection gets a place, if need be at the cost of another connection.
//!
//! Unauthenticated connections have their own bounds, on places and on requests. Beyond these, the network address
//! with the most gives up its oldest connection, idle ones first, or its connections with the most requests. So
//! unauthenticated callers compete only with each other, and a greedy caller with itself. Connections of
//! authenticated callers share the rest, account by account: beyond the bound, the account with the most gives up its
//! longest idle connection.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{
    Bounds, Caller,
    connection::Connection,
    group::{Group, Network},
};

/// Requests that each side may carry at once beyond two for each place, large heads counted as several: a few clients
/// with many requests each are as welcome as many clients with one.
const REQUESTS_IN_ANY_CASE: usize = 4096;
/// Part of the requests that a side gives up when overloaded: choosing connections to close takes time.
const RELIEVED_PART: usize = 16;

/// The places of a port.
pub(super) struct Admission {
    untrusted: Side,
    trusted: Side,
    next: AtomicU64,
    groups: Mutex<Groups>,
}

/// Bounds of the authenticated or the unauthenticated connections, and the load of all requests.
struct Side {
    places: usize,
    most_load: usize,
    load: AtomicUsize,
}

#[derive(Default)]
struct Groups {
    untrusted: Group<Network>,
    trusted: Group<Caller>,
}

/// The place of a connection, freed by the drop.
pub(super) struct Place(pub(super) Arc<Connection>, Arc<Admission>);

impl Side {
    const fn new(places: usize, more_requests: usize) -> Self {
        let most_load = 2 * places + REQUESTS_IN_ANY_CASE + more_requests;
        Self { places, most_load, load: AtomicUsize::new(0) }
    }

    /// The load that is too much, with some more.
    fn excess(&self) -> Option<usize> {
        let load = self.load.load(Ordering::Relaxed);
        (load > self.most_load).then(|| load - (self.most_load - self.most_load / RELIEVED_PART))
    }
}

impl Admission {
    pub(super) fn new(bounds: &Bounds) -> Arc<Self> {
        let unauthenticated = bounds.unauthenticated.min(bounds.connections).max(1);
        Arc::new(Self {
            untrusted: Side::new(unauthenticated, 0),
            trusted: Side::new(bounds.connections.saturating_sub(unauthenticated), bounds.requests),
            next: AtomicU64::new(0),
            groups: Mutex::default(),
        })
    }

    // Locked before the state of a connection, never afterwards.
    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock()
    }

    /// Gives a new connection a place.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Place {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(number, Network::of(peer), self.clone(), Instant::now()));
        let mut groups = self.groups();
        groups.untrusted.insert(connection.network, connection.clone());
        if groups.untrusted.len() > self.untrusted.places {
            self.evict(groups.untrusted.take_oldest_of_most(), "unauthenticated");
        }
        drop(groups);
        Place(connection, self.clone())
    }

    /// Moves a connection to the authenticated connections; without a free place or an idle connection there, the
    /// connection stays.
    pub(super) fn trust(&self, connection: &Arc<Connection>, caller: Caller) {
        let mut groups = self.groups();
        // A connection evicted meanwhile has no place any more.
        if self.trusted.places == 0 || !groups.untrusted.contains(connection.network, connection.number) {
            return;
        }
        if groups.trusted.len() >= self.trusted.places {
            let Some(idle) = groups.trusted.take_idle_of_most() else { return };
            self.evict(Some(idle), "authenticated");
        }
        groups.untrusted.remove(connection.network, connection.number);
        groups.trusted.insert(caller, connection.clone());
        let load = connection.become_trusted(caller);
        self.untrusted.load.fetch_sub(load, Ordering::Relaxed);
        self.trusted.load.fetch_add(load, Ordering::Relaxed);
    }

    fn side(&self, trusted: bool) -> &Side {
        if trusted { &self.trusted } else { &self.untrusted }
    }

    /// Adds weight to the load of a side. Returns whether the load is too much: `relieve` is then due.
    pub(super) fn load(&self, trusted: bool, weight: usize) -> bool {
        let side = self.side(trusted);
        side.load.fetch_add(weight, Ordering::Relaxed) + weight > side.most_load
    }

    /// Takes off the load of requests that have ended.
    pub(super) fn unload(&self, trusted: bool, weight: usize) {
        self.side(trusted).load.fetch_sub(weight, Ordering::Relaxed);
    }

    /// Closes connections with the most requests until the load is within bounds.
    pub(super) fn relieve(&self, trusted: bool) {
        let mut groups = self.groups();
        let Some(excess) = self.side(trusted).excess() else { return };
        let evicted =
            if trusted { groups.trusted.take_busiest(excess) } else { groups.untrusted.take_busiest(excess) };
        for connection in evicted {
            self.evict(Some(connection), "busiest");
        }
    }

    fn evict(&self, connection: Option<Arc<Connection>>, of: &'static str) {
        if let Some(connection) = connection {
            metrics::counter!("http_connections_evicted_total", "of" => of).increment(1);
            let (trusted, load) = connection.evict();
            self.unload(trusted, load);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut groups = self.1.groups();
        match self.0.caller() {
            Some(caller) => groups.trusted.remove(caller, self.0.number),
            None => groups.untrusted.remove(self.0.network, self.0.number),
        };
    }
}

#[cfg(test)]
mod tests;
