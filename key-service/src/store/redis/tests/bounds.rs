//! What one account may fill, and what it may read.

use crate::store::suite::act;
use std::time::Duration;

use ::redis::cmd;
use tokio::time::{Instant, sleep};

use super::{Redis, open, place};
use crate::store::{
    Accounts, Capacity, Created, Idempotency, Keys, Ledger, Members, NewAccount,
    suite::{
        capture, hold, make_key, open_account_with,
        servers::{PATIENCE, RedisServer},
    },
};
use domain::{
    digest::Digest,
    key::{ApiKey, NewKey},
    ledger::{
        self, Outcome,
        histories::{START, account, generation},
    },
};

/// Commands that the server has carried out.
async fn commands(store: &Redis) -> u64 {
    let mut question = cmd("INFO");
    let info: String = store.client.ask(question.arg("stats")).await.unwrap();
    let count = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
    count.unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_redis_that_is_nearly_full_says_so_and_still_serves_holds() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let mine = open_account_with(&store, 1, 1_000).await;
    let key = make_key(&store, mine, 1, None).await;
    assert!(!store.is_nearly_full().await.unwrap(), "without a bound");
    server.ask("CONFIG SET maxmemory 32mb");
    sleep(Duration::from_millis(1_100)).await;
    assert!(!store.is_nearly_full().await.unwrap(), "with room");
    server.ask(&format!("SETRANGE filler {} x", 27 << 20));
    let deadline = Instant::now() + PATIENCE;
    while !store.is_nearly_full().await.unwrap() {
        assert!(Instant::now() < deadline, "it does not notice");
        sleep(Duration::from_millis(100)).await;
    }
    let commands = vec![hold(key, generation(1), 5, 7), capture(key, generation(1), 5)];
    let outcomes = store.execute(mine, commands, START).await.unwrap();
    assert!(matches!(outcomes[..], [Ok(_), Ok(Outcome::Captured(_))]), "{outcomes:?}");
    server.ask("DEL filler");
    sleep(Duration::from_millis(1_100)).await;
    assert!(!store.is_nearly_full().await.unwrap(), "with room again");
}

#[tokio::test]
async fn accounts_and_members_are_found_by_name_in_as_many_commands_however_many_there_are() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let mut took = Vec::new();
    for accounts in [1, 100] {
        for n in 0..accounts {
            let (id, name) = (account(n), format!("Customer {n}"));
            assert!(store.create_account(NewAccount { id, name, created_at: START }).await.unwrap());
        }
        let before = commands(&store).await;
        assert_eq!(store.account_named("Customer 0").await.unwrap(), Some(account(0)));
        assert_eq!(store.account_named("invented").await.unwrap(), None);
        assert_eq!(store.member_named(account(0), "invented").await.unwrap(), None);
        took.push(commands(&store).await - before);
    }
    // The store is marked as seen every few seconds, in 16 places, and that may come in between.
    assert!(took.iter().all(|took| *took < 3 + 60), "{took:?}");
}

#[tokio::test]
async fn an_idempotency_key_takes_as_much_room_however_long_it_is() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let mine = open_account_with(&store, 1, 1_000).await;
    let key = ApiKey::new(ledger::histories::key(1), "fg".into(), START);
    let digest = Digest::of(b"plaintext");
    let attempt = Idempotency {
        key: Digest::of("x".repeat(1 << 20).as_bytes()),
        request: Digest::of(b"request"),
        now: START,
        expires_at: START.plus(Duration::from_hours(24)),
    };
    let created =
        store.create_key(NewKey { account: mine, key, digest, most: 9 }, Some(attempt), &act(START)).await;
    assert!(matches!(created.unwrap(), Created::New(_)));
    let mut question = cmd("KEYS");
    let names: Vec<String> = store.client.ask(question.arg("*idempotency*")).await.unwrap();
    assert!(matches!(&names[..], [name] if name.len() < 200), "{names:?}");
}
