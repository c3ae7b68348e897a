//! Admission of connections: every new one gets a place, if need be that of another one that does less.
//!
//! Connections on which no credential was accepted yet have a budget of their own. Beyond it the oldest of them is closed, one
//! that carries no request first. So callers without a credential compete with each other only, and a new caller has the
//! time that so many others take to arrive. Connections of authenticated callers share the rest. Beyond it the one that
//! has been idle longest is closed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::{Bounds, connection::Connection};

/// The places of one port.
pub(super) struct Admission {
    unauthenticated: usize,
    authenticated: usize,
    next: AtomicU64,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    untrusted: BTreeMap<u64, Arc<Connection>>,
    trusted: BTreeMap<u64, Arc<Connection>>,
}

/// The place of a connection, free again when it is dropped.
pub(super) struct Place(pub(super) Arc<Connection>, Arc<Admission>);

impl Admission {
    pub(super) fn new(bounds: &Bounds) -> Arc<Self> {
        let unauthenticated = bounds.unauthenticated.min(bounds.connections).max(1);
        Arc::new(Self {
            unauthenticated,
            authenticated: bounds.connections - unauthenticated.min(bounds.connections),
            next: AtomicU64::new(0),
            places: Mutex::default(),
        })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock()
    }

    /// Gives a new connection a place.
    pub(super) fn admit(self: &Arc<Self>) -> Place {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection::new(number, self.clone(), Instant::now()));
        let mut places = self.places();
        if places.untrusted.len() >= self.unauthenticated {
            let silent = places.untrusted.values().find(|other| other.is_silent());
            let oldest = silent.or_else(|| places.untrusted.values().next()).map(|other| other.number);
            evict(oldest.and_then(|number| places.untrusted.remove(&number)), "unauthenticated");
        }
        places.untrusted.insert(number, connection.clone());
        drop(places);
        Place(connection, self.clone())
    }

    /// Moves a connection to those of authenticated callers, and returns whether there was room: where all of those are busy, it
    /// stays where it is.
    pub(super) fn trust(&self, connection: &Arc<Connection>) -> bool {
        let mut places = self.places();
        // One that was evicted meanwhile has no place any more.
        if self.authenticated == 0 || !places.untrusted.contains_key(&connection.number) {
            return false;
        }
        if places.trusted.len() >= self.authenticated {
            let idle = |other: &Arc<Connection>| Some((other.idle_since()?, other.number));
            let Some((_, longest_idle)) = places.trusted.values().filter_map(idle).min() else {
                return false;
            };
            evict(places.trusted.remove(&longest_idle), "authenticated");
        }
        places.untrusted.remove(&connection.number);
        places.trusted.insert(connection.number, connection.clone());
        true
    }
}

fn evict(connection: Option<Arc<Connection>>, of: &'static str) {
    if let Some(connection) = connection {
        metrics::counter!("http_connections_evicted_total", "of" => of).increment(1);
        connection.evicted.notify_one();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.1.places();
        places.untrusted.remove(&self.0.number);
        places.trusted.remove(&self.0.number);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, pause};

    use super::*;

    fn admission(connections: usize, unauthenticated: usize) -> Arc<Admission> {
        Admission::new(&Bounds { connections, unauthenticated, ..Bounds::default() })
    }

    async fn was_evicted(place: &Place) -> bool {
        tokio::time::timeout(std::time::Duration::ZERO, place.0.evicted.notified()).await.is_ok()
    }

    #[tokio::test]
    async fn a_newcomer_takes_the_place_of_the_oldest_that_carries_no_request() {
        let admission = admission(10, 3);
        let places = [admission.admit(), admission.admit(), admission.admit()];
        for place in &places {
            place.0.note_silence();
        }
        let busy = places[0].0.begin_request();
        let newcomer = admission.admit();
        assert!(!was_evicted(&places[0]).await && was_evicted(&places[1]).await);
        assert!(!was_evicted(&places[2]).await && !was_evicted(&newcomer).await);
        drop(busy);
    }

    #[tokio::test]
    async fn no_number_of_untrusted_connections_takes_the_place_of_a_trusted_one() {
        let admission = admission(10, 3);
        let trusted = admission.admit();
        trusted.0.trust();
        let others: Vec<_> = (0..100).map(|_| admission.admit()).collect();
        assert!(!was_evicted(&trusted).await);
        let mut evicted = 0;
        for other in &others {
            evicted += usize::from(was_evicted(other).await);
        }
        assert_eq!(evicted, 97);
    }

    #[tokio::test]
    async fn trusted_ones_yield_by_how_long_they_are_idle_and_only_to_each_other() {
        pause();
        let admission = admission(4, 2);
        let (first, second) = (admission.admit(), admission.admit());
        first.0.trust();
        advance(std::time::Duration::from_secs(1)).await;
        second.0.trust();
        drop(first.0.begin_request());
        let third = admission.admit();
        third.0.trust();
        assert!(was_evicted(&second).await, "it was idle longer");
        assert!(!was_evicted(&first).await);
        let busy = [first.0.begin_request(), third.0.begin_request()];
        let fourth = admission.admit();
        fourth.0.trust();
        assert!(!was_evicted(&first).await && !was_evicted(&third).await, "all are busy");
        drop(busy);
    }

    #[tokio::test]
    async fn places_come_free_again() {
        let admission = admission(4, 2);
        for _ in 0..10 {
            let place = admission.admit();
            place.0.trust();
        }
        let places = admission.places();
        assert_eq!((places.untrusted.len(), places.trusted.len()), (0, 0));
    }
}
