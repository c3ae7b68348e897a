//! Admission of connections: every new one gets a place, if need be that of another one that does less.
//!
//! Connections on which no credential was accepted yet have a budget of their own, of places and of requests. Beyond it the
//! network address that takes the most of it gives some back: its oldest connection, one that carries no request first, or
//! the one with the most requests. So callers without a credential compete with each other only, and one that takes much
//! competes with itself. Connections of authenticated callers share the rest, account by account: beyond it the account with
//! the most gives up the one that has been idle longest.

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

/// Requests that each side may carry at once beyond two for each of its places, those with large heads counted as several: a few
/// clients with many requests each are as welcome as many with one.
const REQUESTS_IN_ANY_CASE: usize = 4096;
/// Part of its requests that a side gives up where there are too many: choosing those that yield takes time.
const RELIEVED_PART: usize = 16;

/// The places of one port.
pub(super) struct Admission {
    untrusted: Side,
    trusted: Side,
    next: AtomicU64,
    groups: Mutex<Groups>,
}

/// Bounds of the connections on which no credential was accepted, or of the others; and the load of their requests.
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

/// The place of a connection, free again when it is dropped.
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

    // Locked before the state of a connection, never after it.
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

    /// Moves a connection to those of authenticated callers, if there is room: where all of those are busy, it stays where it is.
    pub(super) fn trust(&self, connection: &Arc<Connection>, caller: Caller) {
        let mut groups = self.groups();
        // One that was evicted meanwhile has no place any more.
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

    /// Adds to the load of all connections, trusted or not. Returns whether it is too much: `relieve` is then due.
    pub(super) fn load(&self, trusted: bool, weight: usize) -> bool {
        let side = self.side(trusted);
        side.load.fetch_add(weight, Ordering::Relaxed) + weight > side.most_load
    }

    /// Takes off the load of requests that have ended.
    pub(super) fn unload(&self, trusted: bool, weight: usize) {
        self.side(trusted).load.fetch_sub(weight, Ordering::Relaxed);
    }

    /// Closes connections with many requests, of those that have the most, until there are not too many.
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
mod tests {
    use std::time::Duration;

    use tokio::time::{advance, pause};

    use super::*;
    use crate::{ids::AccountId, time::Timestamp};

    fn admission(connections: usize, unauthenticated: usize) -> Arc<Admission> {
        Admission::new(&Bounds { connections, unauthenticated, ..Bounds::default() })
    }

    fn from(admission: &Arc<Admission>, machine: u8) -> Place {
        admission.admit(IpAddr::from([192, 0, 2, machine]))
    }

    async fn was_evicted(place: &Place) -> bool {
        tokio::time::timeout(Duration::ZERO, place.0.evicted.notified()).await.is_ok()
    }

    #[tokio::test]
    async fn a_newcomer_takes_the_place_of_the_oldest_that_carries_no_request() {
        pause();
        let admission = admission(10, 3);
        let places = [from(&admission, 1), from(&admission, 1), from(&admission, 1)];
        for place in &places {
            place.0.note_silence();
        }
        let busy = places[0].0.begin_request(0);
        advance(Duration::from_secs(1)).await;
        let newcomer = from(&admission, 1);
        assert!(!was_evicted(&places[0]).await && was_evicted(&places[1]).await);
        assert!(!was_evicted(&places[2]).await && !was_evicted(&newcomer).await);
        drop(busy);
    }

    #[tokio::test]
    async fn the_address_with_the_most_connections_gives_one_up() {
        let admission = admission(20, 8);
        // All of the strangers' are busy, and the caller's is silent: the worst case for it.
        let caller = from(&admission, 2);
        caller.0.note_silence();
        let strangers: Vec<_> = (0..100).map(|_| from(&admission, 1)).collect();
        let requests: Vec<_> = strangers.iter().map(|place| place.0.begin_request(0)).collect();
        let later = from(&admission, 3);
        for _ in 0..100 {
            let stranger = from(&admission, 1);
            stranger.0.begin_request(0);
        }
        assert!(!was_evicted(&caller).await && !was_evicted(&later).await);
        // Of many with one each, the oldest goes.
        drop((strangers, requests));
        let crowd: Vec<_> = (10..16).map(|machine| from(&admission, machine)).collect();
        let newcomer = from(&admission, 1);
        assert!(was_evicted(&caller).await);
        assert!(!was_evicted(&later).await && !was_evicted(&newcomer).await && !was_evicted(&crowd[0]).await);
    }

    #[tokio::test]
    async fn no_number_of_untrusted_connections_takes_the_place_of_a_trusted_one() {
        let admission = admission(10, 3);
        let trusted = from(&admission, 1);
        trusted.0.trust(Caller::Service);
        let others: Vec<_> = (0..100).map(|_| from(&admission, 1)).collect();
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
        let (first, second) = (from(&admission, 1), from(&admission, 1));
        first.0.trust(Caller::Service);
        advance(Duration::from_secs(1)).await;
        second.0.trust(Caller::Service);
        drop(first.0.begin_request(0));
        let third = from(&admission, 1);
        third.0.trust(Caller::Service);
        assert!(was_evicted(&second).await, "it was idle longer");
        assert!(!was_evicted(&first).await);
        let busy = [first.0.begin_request(0), third.0.begin_request(0)];
        let fourth = from(&admission, 1);
        fourth.0.trust(Caller::Service);
        assert!(!was_evicted(&first).await && !was_evicted(&third).await, "all are busy");
        drop(busy);
    }

    #[tokio::test]
    async fn an_account_that_takes_all_trusted_places_yields_to_another() {
        pause();
        let admission = admission(6, 2);
        let account = |number: u8| Caller::Account(AccountId::new(Timestamp::from_millis(0), [number; 10]));
        let small = from(&admission, 1);
        small.0.trust(account(1));
        advance(Duration::from_secs(1)).await;
        let mut greedy = Vec::new();
        for _ in 0..20 {
            let place = from(&admission, 1);
            place.0.trust(account(2));
            greedy.push(place);
        }
        assert!(!was_evicted(&small).await, "though it was idle longest");
        assert!(was_evicted(&greedy[0]).await && !was_evicted(&greedy[19]).await);
    }

    #[tokio::test]
    async fn the_busiest_of_strangers_goes_when_there_are_too_many_requests() {
        let admission = admission(10, 4);
        let (modest, greedy, idle) = (from(&admission, 1), from(&admission, 2), from(&admission, 2));
        let few: Vec<_> = (0..100).map(|_| modest.0.begin_request(0)).collect();
        let many: Vec<_> =
            (0..2 * 4 + REQUESTS_IN_ANY_CASE - 100).map(|_| greedy.0.begin_request(0)).collect();
        assert!(!was_evicted(&greedy).await);
        let one_more = modest.0.begin_request(0);
        assert!(was_evicted(&greedy).await && !was_evicted(&modest).await && !was_evicted(&idle).await);
        // A head of 64 KiB weighs as much as 17 requests without one.
        let large: Vec<_> =
            (0..1 + REQUESTS_IN_ANY_CASE / 17).map(|_| idle.0.begin_request(64 << 10)).collect();
        assert!(was_evicted(&idle).await && !was_evicted(&modest).await);
        drop((few, many, one_more, large));
        assert_eq!(admission.untrusted.load.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn places_and_requests_come_free_again() {
        let admission = admission(4, 2);
        for _ in 0..10 {
            let place = from(&admission, 1);
            let request = place.0.begin_request(0);
            place.0.trust(Caller::Service);
            drop((place.0.begin_request(0), request));
        }
        let groups = admission.groups();
        assert_eq!((groups.untrusted.len(), groups.trusted.len()), (0, 0));
        let load = |side: &Side| side.load.load(Ordering::Relaxed);
        assert_eq!((load(&admission.untrusted), load(&admission.trusted)), (0, 0));
    }
}
