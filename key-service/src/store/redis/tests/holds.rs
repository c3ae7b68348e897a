//! Settled generations, late captures, and holds that cannot be decided or reached.

use ::redis::{Value, cmd};
use shared::{ids::GenerationId, money::NanoUsd, tokens::Usage};

use super::{open, place};
use crate::store::{
    Books, DueHold, Ledger,
    suite::{
        after, capture, hold,
        in_redis::settings,
        make_key, open_account_with,
        servers::{Cluster, RedisServer},
        spend, tick,
    },
};
use domain::ledger::{Command, Outcome, Progress, Refused, histories::START};

#[tokio::test]
async fn a_settled_generation_is_remembered_for_hours_and_never_billed_again_after_them() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    let generation = GenerationId::new(START, [7; 10]);
    let commands = vec![hold(key, generation, 9, 7), capture(key, generation, 9)];
    let billed = store.execute(account, commands, START).await.unwrap().remove(1);
    let settled = store.key_space.settled(account, START.millis() / 3_600_000);
    let left = server.ask(&format!("TTL {settled}")).unwrap();
    assert!((14_300..=14_400).contains(&left[1..].parse::<u32>().unwrap()), "{left}");
    let retry = async |seconds| {
        let commands = vec![capture(key, generation, 9)];
        store.execute(account, commands, after(seconds)).await.unwrap().remove(0)
    };
    assert_eq!(retry(7_200).await, billed);
    server.ask(&format!("DEL {settled}")).unwrap();
    let Ok(Outcome::Captured(again)) = retry(14_401).await else { panic!("it is recorded") };
    assert_eq!((again.charged, again.shortfall()), (NanoUsd::ZERO, NanoUsd::from_nanos(9)));
    assert_eq!(spend(&store, account, key).await.budget.used, NanoUsd::from_nanos(9));
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
}

#[tokio::test]
async fn a_capture_long_after_an_expiry_replaces_its_bill() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    let generation = GenerationId::new(START, [7; 10]);
    let usage = Usage::of(9, 0, 9);
    let progress = Progress { usage, cost: NanoUsd::from_nanos(8), upstream_cost: None };
    let report = Command::Extend { key, generation, most: NanoUsd::ZERO, progress, lease_ticks: 1 };
    store.execute(account, vec![hold(key, generation, 9, 1), report], START).await.unwrap();
    tick(&store, account, 1).await;
    store.execute(account, vec![Command::Expire { key, generation }], after(60)).await.unwrap();
    assert_eq!(spend(&store, account, key).await.budget.used, NanoUsd::from_nanos(8));
    let a_week = after(7 * 86_400);
    for _ in 0..2 {
        let captured = store.execute(account, vec![capture(key, generation, 3)], a_week).await.unwrap();
        assert!(
            matches!(&captured[..], [Ok(Outcome::Captured(s))] if s.charged.nanos() == 3),
            "{captured:?}"
        );
    }
    assert_eq!(spend(&store, account, key).await.budget.used, NanoUsd::from_nanos(3));
    assert_eq!(store.audit(account).await.unwrap().unwrap().wrong, []);
    let expired = store.key_space.expired(account, START.millis() / 86_400_000);
    assert_eq!(server.ask(&format!("EXISTS {expired}")).unwrap(), ":0");
}

/// Largest number of expiries in a batch.
const UNDECIDABLE: u16 = 512;

#[tokio::test]
async fn holds_that_cannot_be_decided_hide_none_behind_them() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    let mut put = cmd("HSET");
    put.arg(store.key_space.holds(account));
    for n in 0..UNDECIDABLE {
        put.arg(GenerationId::new(after(n.into()), [9; 10]).as_bytes()).arg("nonsense");
    }
    store.client.ask::<Value>(&put).await.unwrap();
    let generation = GenerationId::new(after(9_999), [1; 10]);
    store.execute(account, vec![hold(key, generation, 1, 1)], START).await.unwrap();
    tick(&store, account, 1).await;
    let (mut due, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.due_holds(account, cursor).await.unwrap();
        due.extend(page.holds);
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert!(due.len() > UNDECIDABLE.into() && due.contains(&DueHold { key, generation }));
    let expire = due.iter().map(|due| Command::Expire { key, generation: due.generation });
    let outcomes = store.execute(account, expire.collect(), START).await.unwrap();
    let expired = outcomes.iter().filter(|outcome| matches!(outcome, Ok(Outcome::Expired(_)))).count();
    let damaged = outcomes.iter().filter(|outcome| **outcome == Err(Refused::Damaged)).count();
    assert_eq!((expired, damaged), (1, outcomes.len() - 1));
}

#[tokio::test]
async fn a_shard_that_is_away_hides_no_account_on_the_others() {
    let mut cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&settings(&cluster.url(), &data_dir)).await.unwrap();
    let mut accounts = Vec::new();
    for n in 0..12 {
        let account = open_account_with(&store, n, 100).await;
        let key = make_key(&store, account, 1, None).await;
        let generation = GenerationId::new(START, [n; 10]);
        store.execute(account, vec![hold(key, generation, 1, 1)], START).await.unwrap();
        accounts.push(account);
    }
    cluster.kill_one();
    let holders = store.accounts_with_holds().await;
    assert!(holders.missing.is_some());
    let mut swept = 0;
    for account in &holders.accounts {
        let ticked = store.execute(*account, vec![Command::Tick { seen: Some(0) }], START).await;
        if ticked.is_ok_and(|outcomes| outcomes == [Ok(Outcome::Ticked(1))]) {
            assert_eq!(store.due_holds(*account, None).await.unwrap().holds.len(), 1);
            swept += 1;
        }
    }
    assert!(swept > 0 && holders.accounts.len() < accounts.len(), "{swept} of {}", holders.accounts.len());
}
