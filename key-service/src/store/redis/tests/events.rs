//! The index of events: kept together with the events, and completed where a version without it has written.

use std::{collections::BTreeMap, time::Duration};

use ::redis::cmd;
use shared::{ids::AccountId, time::Timestamp};
use tokio::time::Instant;

use super::{Redis, open, place};
use crate::store::{
    Capacity, EVENTS_KEPT, Events, Keys,
    suite::{
        act, events::each_key_and_group_has_its_events, make_key, open_account_with, servers::RedisServer,
    },
};
use domain::{
    key::KeyPatch,
    ledger::histories::{START, key},
    settings::MetadataPatch,
};

/// Changes the label of the first key some times, each with an event.
async fn relabel(store: &Redis, account: AccountId, at: Timestamp, times: u32) {
    for n in 0..times {
        let patch = KeyPatch { label: Some(format!("{n} at {at}")), ..KeyPatch::default() };
        store.update_key(account, key(1), patch, &act(at)).await.unwrap();
    }
}

#[tokio::test]
async fn events_of_a_version_without_the_index_are_found() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    make_key(&store, account, 1, None).await;
    let ask = |command: &str, part: &str, rest: &str| {
        let line = format!("{command} {}:{{{account}}}:{part} {rest}", settings.prefix);
        assert!(!server.ask(&line).unwrap().starts_with('-'), "{line}");
    };
    // More than a run of the script adds.
    relabel(&store, account, START, 450).await;
    ask("DEL", "event-index", "");
    ask("HDEL", "event-numbers", "\"\"");
    relabel(&store, account, START, 3).await;
    each_key_and_group_has_its_events(&store, account, 50).await;
    // Back for a while, that version writes events and drops others.
    relabel(&store, account, START, 3).await;
    ask("HSET", "event-numbers", "\"\" 456");
    ask("ZREMRANGEBYRANK", "event-index", "-2 -1");
    ask("XTRIM", "events", "MINID 100-0");
    relabel(&store, account, START, 1).await;
    each_key_and_group_has_its_events(&store, account, 50).await;
}

#[tokio::test]
async fn events_leave_the_index_when_they_are_dropped() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    make_key(&store, account, 1, None).await;
    let size = || server.ask(&format!("ZCARD {}:{{{account}}}:event-index", settings.prefix)).unwrap();
    relabel(&store, account, START, 9).await;
    assert_eq!(size(), ":10");
    relabel(&store, account, START.plus(2 * EVENTS_KEPT), 1).await;
    assert_eq!(size(), ":1");
}

#[tokio::test]
async fn events_of_a_version_that_counted_no_bytes_make_room_for_others() {
    type Entry = (String, Vec<(String, Vec<u8>)>);
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    make_key(&store, account, 1, None).await;
    relabel(&store, account, START, 300).await;
    let name = store.key_space.events(account);
    let all = cmd("XRANGE").arg(&name).arg("-").arg("+").to_owned();
    let entries: Vec<Entry> = store.client.ask(&all).await.unwrap();
    store.client.ask::<()>(cmd("DEL").arg(&name)).await.unwrap();
    for (id, fields) in &entries {
        let mut add = cmd("XADD");
        add.arg(&name).arg(id);
        for (field, value) in fields.iter().filter(|(field, _)| field != "bytes") {
            add.arg(field).arg(value);
        }
        store.client.ask::<()>(&add).await.unwrap();
    }
    let text = "x".repeat(500);
    for n in 0..700 {
        let metadata = MetadataPatch {
            is_cleared: false,
            changes: BTreeMap::from([("a".to_owned(), Some(format!("{n} {text}")))]),
        };
        let patch = KeyPatch { metadata, ..KeyPatch::default() };
        store.update_key(account, key(1), patch, &act(START)).await.unwrap();
    }
    let events = store.events_after(account, 0, 10_000).await.unwrap().events;
    let sum: u64 = events.iter().map(|event| event.event.to_json().len() as u64).sum();
    let most = settings.events.bytes;
    assert!(sum <= most && sum + 3_000 > most, "{sum} of {most}");
    assert!(events[0].number > 301, "the old ones went first");
    each_key_and_group_has_its_events(&store, account, 300).await;
}

#[tokio::test]
async fn in_a_redis_that_is_nearly_full_events_replace_the_oldest() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    make_key(&store, account, 1, None).await;
    relabel(&store, account, START, 100).await;
    let kept = async || store.events_after(account, 0, 10_000).await.unwrap().events;
    let before = kept().await.len();
    server.ask("CONFIG SET maxmemory 32mb");
    server.ask(&format!("SETRANGE filler {} x", 27 << 20));
    let deadline = Instant::now() + Duration::from_secs(5);
    while !store.is_nearly_full().await.unwrap() {
        assert!(Instant::now() < deadline, "it does not notice");
    }
    relabel(&store, account, START, 150).await;
    let events = kept().await;
    assert!(events.len() <= before + 1, "{} of {before}", events.len());
    let last = events.last().unwrap().number;
    assert_eq!((last, events.len() as u64), (before as u64 + 150, last + 1 - events[0].number));
    each_key_and_group_has_its_events(&store, account, 50).await;
    // An account that has but one event keeps it.
    let other = open_account_with(&store, 2, 100).await;
    make_key(&store, other, 1, None).await;
    assert_eq!(
        store.events_after(other, 0, 9).await.unwrap().events.last().unwrap().event.kind.as_str(),
        "key.created"
    );
}
