//! The index of events: kept together with the events, and completed where a version without it has written.

use shared::{ids::AccountId, time::Timestamp};

use super::{Redis, open, place};
use crate::store::{
    EVENTS_KEPT, Keys,
    suite::{
        act, events::each_key_and_group_has_its_events, make_key, open_account_with, servers::RedisServer,
    },
};
use domain::{
    key::KeyPatch,
    ledger::histories::{START, key},
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
