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
    // All unauthenticated connections are busy, and the caller's is silent: the worst case for the caller.
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
    // Among many addresses with a connection each, the oldest connection goes.
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
    let many: Vec<_> = (0..2 * 4 + REQUESTS_IN_ANY_CASE - 100).map(|_| greedy.0.begin_request(0)).collect();
    assert!(!was_evicted(&greedy).await);
    let one_more = modest.0.begin_request(0);
    assert!(was_evicted(&greedy).await && !was_evicted(&modest).await && !was_evicted(&idle).await);
    // A head of 64 KiB weighs more than 17 requests with small heads.
    let large: Vec<_> = (0..=REQUESTS_IN_ANY_CASE / 17).map(|_| idle.0.begin_request(64 << 10)).collect();
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
