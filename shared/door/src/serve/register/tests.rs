use std::time::Duration;

use shared::{ids::AccountId, time::Timestamp};
use tokio::time::{advance, pause};

use super::*;

fn register(connections: usize, unauthenticated: usize) -> Arc<Register> {
    Register::new(&Bounds { connections, unauthenticated, ..Bounds::default() }, TaskTracker::new())
}

fn from(register: &Arc<Register>, machine: u8) -> Registration {
    register.admit(IpAddr::from([192, 0, 2, machine]))
}

async fn was_evicted(registration: &Registration) -> bool {
    tokio::time::timeout(Duration::ZERO, registration.0.evicted.notified()).await.is_ok()
}

#[tokio::test]
async fn the_latest_takes_the_place_of_the_oldest_that_carries_no_request() {
    pause();
    let register = register(10, 3);
    let registered = [from(&register, 1), from(&register, 1), from(&register, 1)];
    for registration in &registered {
        registration.0.note_silence();
    }
    let busy = registered[0].0.begin_request(0);
    advance(Duration::from_secs(1)).await;
    let latest = from(&register, 1);
    assert!(!was_evicted(&registered[0]).await && was_evicted(&registered[1]).await);
    assert!(!was_evicted(&registered[2]).await && !was_evicted(&latest).await);
    drop(busy);
}

#[tokio::test]
async fn the_address_with_the_most_connections_gives_one_up() {
    let register = register(20, 8);
    // All other unauthenticated connections are busy, and the caller's connection is silent. This is the worst case for
    // the caller.
    let caller = from(&register, 2);
    caller.0.note_silence();
    let others: Vec<_> = (0..100).map(|_| from(&register, 1)).collect();
    let requests: Vec<_> = others.iter().map(|registration| registration.0.begin_request(0)).collect();
    let later = from(&register, 3);
    for _ in 0..100 {
        let other = from(&register, 1);
        other.0.begin_request(0);
    }
    assert!(!was_evicted(&caller).await && !was_evicted(&later).await);
    // Many addresses have one connection each, so the oldest of all connections is closed.
    drop((others, requests));
    let crowd: Vec<_> = (10..16).map(|machine| from(&register, machine)).collect();
    let latest = from(&register, 1);
    assert!(was_evicted(&caller).await);
    assert!(!was_evicted(&later).await && !was_evicted(&latest).await && !was_evicted(&crowd[0]).await);
}

#[tokio::test]
async fn no_number_of_unauthenticated_connections_takes_the_place_of_a_trusted_one() {
    let register = register(10, 3);
    let trusted = from(&register, 1);
    trusted.0.trust(Owner::Service);
    let others: Vec<_> = (0..100).map(|_| from(&register, 1)).collect();
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
    let register = register(4, 2);
    let (first, second) = (from(&register, 1), from(&register, 1));
    first.0.trust(Owner::Service);
    advance(Duration::from_secs(1)).await;
    second.0.trust(Owner::Service);
    drop(first.0.begin_request(0));
    let third = from(&register, 1);
    third.0.trust(Owner::Service);
    assert!(was_evicted(&second).await, "it was idle longer");
    assert!(!was_evicted(&first).await);
    let busy = [first.0.begin_request(0), third.0.begin_request(0)];
    let fourth = from(&register, 1);
    fourth.0.trust(Owner::Service);
    assert!(!was_evicted(&first).await && !was_evicted(&third).await, "all are busy");
    drop(busy);
}

#[tokio::test]
async fn an_account_that_takes_all_trusted_places_yields_to_another() {
    pause();
    let register = register(6, 2);
    let account = |number: u8| Owner::Account(AccountId::new(Timestamp::from_millis(0), [number; 10]));
    let small = from(&register, 1);
    small.0.trust(account(1));
    advance(Duration::from_secs(1)).await;
    let mut greedy = Vec::new();
    for _ in 0..20 {
        let registration = from(&register, 1);
        registration.0.trust(account(2));
        greedy.push(registration);
    }
    assert!(!was_evicted(&small).await, "though it was idle longest");
    assert!(was_evicted(&greedy[0]).await && !was_evicted(&greedy[19]).await);
}

#[tokio::test]
async fn the_busiest_of_others_goes_when_there_are_too_many_requests() {
    let register = register(10, 4);
    let (modest, greedy, idle) = (from(&register, 1), from(&register, 2), from(&register, 2));
    let few: Vec<_> = (0..100).map(|_| modest.0.begin_request(0)).collect();
    let many: Vec<_> = (0..2 * 4 + REQUESTS_IN_ANY_CASE - 100).map(|_| greedy.0.begin_request(0)).collect();
    assert!(!was_evicted(&greedy).await);
    let one_more = modest.0.begin_request(0);
    assert!(was_evicted(&greedy).await && !was_evicted(&modest).await && !was_evicted(&idle).await);
    // A request with a head of 64 KiB weighs more than 17 requests with small heads.
    let large: Vec<_> = (0..=REQUESTS_IN_ANY_CASE / 17).map(|_| idle.0.begin_request(64 << 10)).collect();
    assert!(was_evicted(&idle).await && !was_evicted(&modest).await);
    drop((few, many, one_more, large));
    assert_eq!(register.unauthenticated.load.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn places_and_requests_come_free_again() {
    let register = register(4, 2);
    for _ in 0..10 {
        let registration = from(&register, 1);
        let request = registration.0.begin_request(0);
        registration.0.trust(Owner::Service);
        drop((registration.0.begin_request(0), request));
    }
    let count = |side: &Side| side.connections.lock().count;
    assert_eq!((count(&register.unauthenticated), count(&register.authenticated)), (0, 0));
    let load = |side: &Side| side.load.load(Ordering::Relaxed);
    assert_eq!((load(&register.unauthenticated), load(&register.authenticated)), (0, 0));
}
