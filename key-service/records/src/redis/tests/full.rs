use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Question, Records, SET, create, has, name, open, place, space};
use crate::{
    records::{Committed, Failure},
    servers::{PATIENCE, RedisServer},
};

#[tokio::test]
async fn a_redis_that_is_nearly_full_says_so_and_still_serves() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    assert_eq!(store.is_nearly_full().await, Ok(false), "without a bound");
    assert!(store.used_ratio().await.unwrap().unwrap() < 1.0, "of the machine's memory");
    server.ask("CONFIG SET maxmemory 32mb");
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(store.is_nearly_full().await, Ok(false), "with room");
    server.ask(&format!("SETRANGE filler {} x", 27 << 20));
    let deadline = Instant::now() + PATIENCE;
    while store.is_nearly_full().await == Ok(false) {
        assert!(Instant::now() < deadline, "it does not notice");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(create(&store, "one").await, Ok(Committed::Written));
    assert!(store.used_ratio().await.unwrap().unwrap() > 0.8);
    server.ask("DEL filler");
    sleep(Duration::from_millis(1_100)).await;
    assert_eq!(store.is_nearly_full().await, Ok(false), "with room again");
}

#[tokio::test]
async fn a_redis_that_is_full_carries_nothing_out_and_says_so() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    store.try_write().await.unwrap();
    server.ask("CONFIG SET maxmemory 1");
    let failed = create(&store, "one").await;
    assert!(matches!(&failed, Err(Failure::NotDone(cause)) if cause.contains("OOM")), "{failed:?}");
    store.try_write().await.unwrap_err();
    assert_eq!(has(&store, "one").await, Ok(false));
    let questions = vec![Question::Records(vec![name("one")]), Question::Set(SET, None)];
    store.read(&space(), questions).await.unwrap();
}
