//! Append-only files that a crash has cut in the middle of a commit.

use std::time::{Duration, Instant};

use shared::clock::{Clock, System};

use super::{Records, Redis, Settings, open, place};
use crate::{
    records::{
        Answer, Commit, Committed, Failure, Guard, Index, Log, MissingServers, Name, Order, Question, Record,
        Space, Write,
    },
    servers::{Cluster, PATIENCE, RedisServer, settings},
    suite::{name, record},
};

/// Numbers of bytes cut off the end of the file. A commit of these tests has about five hundred.
const CUTS: [u64; 9] = [20, 61, 130, 190, 260, 350, 440, 610, 900];
const COMMITS: u64 = 8;

fn number_of(record: Option<&Record>) -> u64 {
    record.map_or(0, |record| u64::from_be_bytes(record.message().try_into().unwrap()))
}

/// Reads a part of what each commit writes, and returns the number of the last commit.
async fn read(store: &Redis, space: &Space) -> Result<(u64, Vec<Option<Record>>), Failure> {
    let (order, limit) = (Order::Ascending, 1_000);
    let questions = vec![
        Question::Records(vec![name("first"), name("second")]),
        Question::Entries { index: Index(1), from: Vec::new(), to: None, order, limit },
        Question::Values { log: Log(1), from: 0, to: u64::MAX, order, limit },
    ];
    let answers = store.read(space, questions).await?;
    let [Answer::Records(records), Answer::Entries(entries), Answer::Values(values)] = answers.as_slice()
    else {
        panic!("{answers:?}")
    };
    let last = number_of(records[0].as_ref());
    assert_eq!(number_of(records[1].as_ref()), last, "both records are of one commit");
    assert!(entries.iter().cloned().eq((1..=last).map(|n| n.to_be_bytes().to_vec())), "{last}: {entries:?}");
    assert!(values.iter().map(|(number, _)| *number).eq(1..=last), "{last}: {values:?}");
    Ok((last, records.clone()))
}

/// Makes the next commit: two records, an entry and a value.
async fn commit(store: &Redis, space: &Space) -> Result<(), Failure> {
    let (last, records) = read(store, space).await?;
    let next = last + 1;
    let names: [Name; 2] = ["first", "second"].map(name);
    let seen = records.iter().map(|record| record.as_ref().map(Record::revision));
    let guards = names.iter().cloned().zip(seen).map(|(name, seen)| Guard { name, seen }).collect();
    let mut writes = vec![Write::Append { log: Log(1), first: next, values: vec![vec![7; 60]], kept: 1_000 }];
    writes.extend(names.map(|name| Write::Put(name, record(next.to_be_bytes()))));
    writes.push(Write::Enter(Index(1), next.to_be_bytes().to_vec()));
    assert_eq!(store.commit(space, Commit { guards, writes }).await?, Committed::Written);
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_torn_in_a_commit_brings_no_part_of_it_back_however_often_redis_starts() {
    for bytes in CUTS {
        tear_and_start(bytes).await;
    }
}

/// Cuts files at random places until the time is over. `make prove` runs this.
#[tokio::test]
#[ignore = "as long as PROVE_MINUTES says"]
async fn files_that_are_torn_at_random_bring_no_part_of_a_commit_back() {
    let minutes = std::env::var("PROVE_MINUTES").map_or(0.2, |minutes| minutes.parse::<f64>().unwrap());
    let until = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let mut files = 0;
    while files == 0 || Instant::now() < until {
        let mut chance = [0; 2];
        System.random(&mut chance);
        tear_and_start(20 + u64::from(u16::from_be_bytes(chance) % 881)).await;
        files += 1;
    }
    println!("torn files, each with three starts of Redis afterwards: {files}");
}

/// Commits, kills Redis, cuts its file, and starts it three times. After each start a commit follows, first in another
/// space, since repeating the cut commit would hide its remains.
async fn tear_and_start(bytes: u64) {
    let (space, other) = (Space::new("account"), Space::new("other"));
    let mut server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    // Without marks, which would come last in the file.
    let settings = Settings { is_marked: false, ..settings };
    let mut store = open(&settings).await.unwrap();
    for _ in 0..COMMITS {
        commit(&store, &space).await.unwrap();
    }
    server.kill();
    server.tear(bytes);
    let mut expected = None;
    for round in 0..3 {
        server.start_again();
        // Alternates between a process that existed before the crash and a new one.
        if round % 2 == 1 {
            store = open(&settings).await.unwrap();
        }
        let (last, _) = read(&store, &space).await.unwrap();
        assert!((COMMITS / 2..COMMITS + 2).contains(&last), "{bytes}, {round}: {last}");
        assert!(expected.is_none_or(|expected| expected == last), "{bytes}, {round}: {last}");
        commit(&store, &other).await.unwrap();
        expected = Some(last);
        if round > 0 {
            commit(&store, &space).await.unwrap();
            expected = Some(last + 1);
        }
        server.kill();
    }
}

#[tokio::test]
async fn a_torn_file_of_a_master_brings_no_part_of_a_commit_back_behind_a_connection_to_a_cluster() {
    let mut cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&Settings { is_marked: false, ..settings(&cluster.url(), &data_dir) }).await.unwrap();
    let spaces = |name: &str| (0..12).map(|n| Space::new(format!("{name} {n}"))).collect::<Vec<_>>();
    let (spaces, others) = (spaces("account"), spaces("other"));
    for space in &spaces {
        for _ in 0..COMMITS {
            commit(&store, space).await.unwrap();
        }
    }
    for bytes in [130, 0] {
        cluster.kill_one();
        cluster.tear_one(bytes);
        cluster.start_one_again();
        // Repeating the cut commit would hide its remains.
        for space in &others {
            let began = Instant::now();
            while let Err(failure) = commit(&store, space).await {
                assert!(began.elapsed() < PATIENCE, "{failure}");
            }
        }
    }
    for space in &spaces {
        read(&store, space).await.unwrap();
    }
}

/// Prevents the server from rewriting its file.
async fn block_rewriting(server: &RedisServer) {
    let folder = server.data().join("appendonlydir");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "in the way").unwrap();
    server.ask("BGREWRITEAOF").unwrap();
    while !server.info("persistence").contains("aof_last_bgrewrite_status:err") {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_process_that_starts_later_needs_no_new_file_of_the_same_run_of_redis() {
    let mut server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let space = Space::new("account");
    commit(&open(&settings).await.unwrap(), &space).await.unwrap();
    server.kill();
    server.start_again();
    commit(&open(&settings).await.unwrap(), &space).await.unwrap();
    assert!(!server.info("persistence").contains("aof_last_rewrite_time_sec:-1"), "it was written anew");
    block_rewriting(&server).await;
    let (_other_dir, other) = place(&server);
    let other = Settings { prefix: settings.prefix.clone(), ..other };
    commit(&open(&other).await.unwrap(), &space).await.unwrap();
}

#[tokio::test]
async fn a_process_that_starts_later_needs_no_new_file_of_a_master_of_a_cluster() {
    let mut cluster = Cluster::start();
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&cluster.url(), &data_dir);
    let store = open(&settings).await.unwrap();
    cluster.kill_one();
    cluster.start_one_again();
    let began = Instant::now();
    while store.ping().await != Ok(MissingServers::default()) {
        assert!(began.elapsed() < PATIENCE, "the master is missing");
    }
    block_rewriting(&cluster.masters[2]).await;
    let other_dir = tempfile::tempdir().unwrap();
    let other = Settings { data_dir: Some(other_dir.path().to_owned()), ..settings };
    assert_eq!(open(&other).await.unwrap().ping().await, Ok(MissingServers::default()));
}

#[tokio::test]
async fn a_redis_that_has_nothing_yet_is_used_without_waiting_for_a_new_file() {
    let server = RedisServer::start();
    block_rewriting(&server).await;
    let (_data_dir, settings) = place(&server);
    commit(&open(&settings).await.unwrap(), &Space::new("account")).await.unwrap();
}

#[tokio::test]
async fn a_user_who_may_not_have_the_file_written_anew_is_told_what_to_allow() {
    let grants = "~* &* +@all -@dangerous +info";
    let refused = async |server: &RedisServer, grants: &str, volatile_allowed| {
        server.ask(&format!("ACL SETUSER faregate reset on >secret {grants}")).unwrap();
        let (_data_dir, settings) = place(server);
        let url = format!("{}?user=faregate&pass=secret", server.url());
        let address = crate::redis::Address::parse(&url).unwrap();
        open(&Settings { address, volatile_allowed, ..settings }).await.err()
    };
    let server = RedisServer::start();
    let says = refused(&server, grants, false).await.unwrap();
    assert!(says.contains("+bgrewriteaof") && says.contains("aof-load-truncated"), "{says}");
    assert_eq!(refused(&server, grants, true).await, None, "the operator accepts losses");
    assert!(server.info("persistence").contains("aof_last_rewrite_time_sec:-1"), "nothing was written anew");
    assert_eq!(refused(&server, &format!("{grants} +bgrewriteaof"), false).await, None);

    // A server that refuses to start with a cut file need not rewrite it.
    let strict = RedisServer::start_with(&["--port", "0", "--aof-load-truncated", "no"]);
    assert!(refused(&strict, grants, false).await.is_some(), "nobody can tell");
    assert_eq!(refused(&strict, &format!("{grants} +config|get"), false).await, None);
    assert!(strict.info("persistence").contains("aof_last_rewrite_time_sec:-1"), "nothing was written anew");
}
