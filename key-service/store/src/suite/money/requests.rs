//! Cases about what is stored about requests besides money: origin, course, and the latest refused calls.

use std::sync::Arc;

use shared::{
    generation::{Course, FinishReason, ModelApi, Origin},
    ids::{AccountId, RefusalId, RequestId},
};

use crate::{
    store::{Hour, Ledger as _, REFUSED_CALLS_KEPT, Store, UPSTREAM_HOURS},
    suite::{Subject, after, capture, hold, make_key, open_account_with, tick},
};
use domain::{
    ledger::{
        Command, Ending, NewHold, Progress, Settlement,
        histories::{START, generation},
    },
    refused::RefusedCall,
    search::EntrySearch,
    upstream_calls::{ClassedTime, UpstreamCalls},
};

fn origin(user: Option<&str>) -> Arc<Origin> {
    let (user, request) = (user.map(str::to_owned), Some(request(1)));
    Arc::new(Origin { api: ModelApi::Messages, stream: true, user, request })
}

fn request(n: u8) -> RequestId {
    RequestId::new(START, [n; 10])
}

fn course(latency_ms: Option<u64>) -> Arc<Course> {
    Arc::new(Course {
        upstream: Some("eu-2".into()),
        authorized_ms: Some(0),
        first_token_ms: Some(41),
        latency_ms,
        finish_reason: latency_ms.map(|_| FinishReason::ToolCalls),
        least_cost_nanos: None,
    })
}

/// Adds everything that a gateway can report to the command.
fn told(command: Command, told: &Arc<Origin>, went: &Arc<Course>) -> Command {
    match command {
        Command::Hold(hold) => Command::Hold(NewHold { origin: Some(told.clone()), ..hold }),
        Command::Capture { key, generation, model, total, chargeable, estimated } => {
            let total = Progress { course: Some(went.clone()), ..total };
            Command::Capture { key, generation, model, total, chargeable, estimated }
        }
        other => other,
    }
}

async fn bills(store: &Store, account: AccountId, search: EntrySearch) -> Vec<Settlement> {
    let found = store.find_entries(account, search, None, 100).await.unwrap().found;
    found.into_iter().map(|entry| entry.entry.settlement).collect()
}

pub(crate) async fn a_bill_says_how_its_request_was_asked_for_and_went(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let key = make_key(store, account, 1, None).await;
    let (origin, whole) = (origin(Some("u-1")), course(Some(950)));
    let commands = [hold(key, generation(1), 10, 7), capture(key, generation(1), 4)];
    let told_all = commands.map(|command| told(command, &origin, &whole));
    store.execute(account, told_all.to_vec(), START).await.unwrap();
    // This gateway does not report origin and course.
    let untold = vec![hold(key, generation(2), 10, 7), capture(key, generation(2), 4)];
    store.execute(account, untold, START).await.unwrap();
    // This gateway is lost after its first report.
    let opened = told(hold(key, generation(3), 10, 1), &origin, &whole);
    let progress = Progress { course: Some(course(None)), ..Progress::default() };
    let extend = Command::Extend {
        key,
        generation: generation(3),
        most: crate::suite::nanos(10),
        progress,
        lease_ticks: 1,
    };
    store.execute(account, vec![opened, extend], START).await.unwrap();
    tick(store, account, 2).await;
    store.execute(account, vec![Command::Expire { key, generation: generation(3) }], START).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let all = bills(store, account, EntrySearch::default()).await;
    let known: Vec<_> =
        all.iter().map(|bill| (bill.ending, bill.origin.clone(), bill.course.clone())).collect();
    let expected = [
        (Ending::Expired, Some(origin.clone()), Some(course(None))),
        (Ending::Captured, None, None),
        (Ending::Captured, Some(origin.clone()), Some(whole.clone())),
    ];
    assert_eq!(known, expected);
    // The lost gateway's capture arrives late.
    let late = told(capture(key, generation(3), 4), &origin, &whole);
    store.execute(account, vec![late], START).await.unwrap();
    let last = &bills(store, account, EntrySearch::default()).await[0];
    assert_eq!((&last.origin, &last.course), (&Some(origin), &Some(whole)));
    let found = async |search: EntrySearch| bills(store, account, search).await.len();
    let of_user = |user: &str| EntrySearch { user: Some(user.into()), ..EntrySearch::default() };
    assert_eq!((found(of_user("u-1")).await, found(of_user("u-2")).await), (3, 0));
    let of_upstream = |of: &str| EntrySearch { upstream: Some(of.into()), ..EntrySearch::default() };
    assert_eq!((found(of_upstream("eu-2")).await, found(of_upstream("eu-3")).await), (3, 0));
    let of_request = |n| EntrySearch { request: Some(request(n)), ..EntrySearch::default() };
    assert_eq!((found(of_request(1)).await, found(of_request(2)).await), (3, 0));
    let expired = EntrySearch { ending: Some(Ending::Expired), ..EntrySearch::default() };
    assert_eq!(found(expired).await, 1);
}

pub(crate) async fn the_last_refused_calls_are_kept_in_the_order_of_time(subject: &mut impl Subject) {
    let store = subject.store();
    let account = open_account_with(store, 1, 1_000).await;
    let other = open_account_with(store, 2, 1_000).await;
    let key = make_key(store, account, 1, None).await;
    let call = |second: u64, user: Option<&str>| RefusedCall {
        id: RefusalId::new(after(second), [7; 10]),
        key,
        reason: "key_limit_reached".into(),
        model: user.map(|_| "Model Flash".into()),
        origin: user.map(|user| origin(Some(user))),
    };
    let calls = [call(1, Some("u-1")), call(3, None), call(2, Some("u-2"))];
    store.add_refused_calls(account, &calls[..2]).await.unwrap();
    store.add_refused_calls(account, &calls[2..]).await.unwrap();
    subject.interrupt().await;
    let store = subject.store();
    let [first, third, second] = calls;
    assert_eq!(store.refused_calls(account).await.unwrap(), [third, second, first]);
    assert_eq!(store.refused_calls(other).await.unwrap(), []);
    let many: Vec<_> = (10..10 + REFUSED_CALLS_KEPT as u64 + 5).map(|second| call(second, None)).collect();
    store.add_refused_calls(account, &many).await.unwrap();
    let kept: Vec<_> = many.iter().rev().take(REFUSED_CALLS_KEPT).cloned().collect();
    assert_eq!(store.refused_calls(account).await.unwrap(), kept);
}

pub(crate) async fn bills_of_upstreams_add_up_by_hour_and_those_of_the_day_before_are_dropped(
    subject: &mut impl Subject,
) {
    let mut calls = UpstreamCalls::default();
    calls.count(&course(None));
    for (upstream, hour) in [("a", 1_000), ("a", 1_000), ("a", 1_003), ("b", 1_001)] {
        subject.store().add_upstream_calls("m", upstream, Hour(hour), calls).await.unwrap();
    }
    subject.interrupt().await;
    let store = subject.store();
    let since = async |hour| {
        let found = store.upstream_calls(Hour(hour)).await.unwrap();
        found.into_iter().map(|((_, upstream), calls)| (upstream, calls.bills)).collect::<Vec<_>>()
    };
    assert_eq!(since(1_000).await, [("a".to_owned(), 3), ("b".to_owned(), 1)]);
    assert_eq!(since(1_002).await, [("a".to_owned(), 1)]);
    store.add_upstream_calls("m", "a", Hour(1_000 + UPSTREAM_HOURS), calls).await.unwrap();
    assert_eq!(since(0).await, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    let all = store.upstream_calls(Hour(0)).await.unwrap();
    assert_eq!(all[&("m".to_owned(), "a".to_owned())].first_token(50), Some(ClassedTime::Within(50)));
}
