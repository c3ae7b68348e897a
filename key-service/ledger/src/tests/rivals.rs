//! Measures how much two key-services slow each other down if both spend from one account through one Redis. It is
//! meant for developers who change lanes and turns.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use domain::ledger::{Account, Command, Key, Progress, histories::new_hold};
use parking_lot::Mutex;
use records::{
    Answer, Commit, Committed, Durability, Failure, Place, Question, Records, Space, Term,
    redis::{Redis, Settings},
    servers::{RedisServer, settings},
};
use shared::{
    clock::{Clock, System},
    ids::{AccountId, GenerationId},
    money::NanoUsd,
};
use tokio::{task::JoinSet, time};

use super::{KEPT, Lanes, key};
use crate::error::StoreError;

/// Commands per second from both processes together, half of them holds and half captures.
const COMMANDS_A_SECOND: u32 = 8_000;
const PROCESSES: u32 = 2;
/// Time between two batches of calls.
const BEAT: Duration = Duration::from_millis(2);
const LASTS: Duration = Duration::from_secs(10);

/// Slows down a backend as if the network were slower. Counts the commits that failed because of a conflict.
struct Counting {
    records: Redis,
    round_trip: Duration,
    commits: AtomicU32,
    lost: AtomicU32,
    /// Number of commits that failed because of a conflict since the last commit that succeeded.
    streak: AtomicU32,
    longest: AtomicU32,
}

#[async_trait]
impl Records for Counting {
    fn system(&self) -> &'static str {
        self.records.system()
    }

    async fn read(&self, space: &Space, questions: Vec<Question>) -> Result<Vec<Answer>, Failure> {
        self.travel().await;
        self.records.read(space, questions).await
    }

    async fn commit(&self, space: &Space, commit: Commit) -> Result<Committed, Failure> {
        self.travel().await;
        let committed = self.records.commit(space, commit).await?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        match &committed {
            Committed::Written => self.streak.store(0, Ordering::Relaxed),
            Committed::Conflict(_) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                let streak = self.streak.fetch_add(1, Ordering::Relaxed) + 1;
                self.longest.fetch_max(streak, Ordering::Relaxed);
            }
        }
        Ok(committed)
    }

    async fn places(&self) -> Result<Vec<(Space, Place)>, Failure> {
        self.records.places().await
    }

    async fn term(&self, space: &Space) -> Term {
        self.records.term(space).await
    }

    async fn settle(&self, space: &Space, durability: Durability, since: Term) -> Result<(), Failure> {
        self.records.settle(space, durability, since).await
    }
}

impl Counting {
    async fn open(settings: &Settings, round_trip: Duration) -> Arc<Self> {
        let records = Redis::open(settings, Arc::new(System)).await.unwrap();
        let (commits, lost, streak, longest) = Default::default();
        Arc::new(Self { records, round_trip, commits, lost, streak, longest })
    }

    async fn travel(&self) {
        if !self.round_trip.is_zero() {
            time::sleep(self.round_trip).await;
        }
    }
}

/// The latencies of the calls that succeeded, and the number of calls that failed.
#[derive(Default)]
struct Heard {
    took: Vec<Duration>,
    failed: u32,
}

/// Sends a hold and a capture, each as a call of its own.
async fn request(ledger: Arc<Lanes>, account: AccountId, heard: Arc<Mutex<Heard>>) {
    let (generation, cost) = (GenerationId::generate(&System), NanoUsd::from_nanos(700));
    let hold = new_hold(key(0), generation, cost);
    let total = Progress { cost, ..Progress::default() };
    let capture = Command::Capture {
        key: key(0),
        generation,
        model: hold.model.clone(),
        total,
        chargeable: None,
        estimated: false,
    };
    for command in [Command::Hold(hold), capture] {
        let began = Instant::now();
        let answer = ledger.execute(account, vec![command], System.now()).await;
        let mut heard = heard.lock();
        match answer.as_deref() {
            Ok([Ok(_)]) => heard.took.push(began.elapsed()),
            Ok(_) | Err(_) => heard.failed += 1,
        }
    }
}

async fn measure(round_trip: Duration, prefers_one: bool) {
    let (server, account) = (RedisServer::shared(), AccountId::generate(&System));
    let folder = tempfile::tempdir().unwrap();
    let (settings, mut backends) = (settings(&server.url(), &folder), Vec::new());
    for _ in 0..PROCESSES {
        backends.push(Counting::open(&settings, round_trip).await);
    }
    let processes: Vec<_> = backends
        .iter()
        .map(|records| Arc::new(Lanes::new(Arc::clone(records) as Arc<dyn Records>, Arc::new(System), KEPT)))
        .collect();
    let made = processes[0].change::<_, StoreError>(account, |change| {
        change.account()?;
        change.set_account(Account { credit: NanoUsd::from_usd(1_000), ..Account::default() });
        change.key(key(0))?;
        change.set_key(key(0), Key::default());
        Ok(())
    });
    made.await.unwrap();
    let (heard, mut calls) = (Arc::new(Mutex::new(Heard::default())), JoinSet::new());
    let mut beats = time::interval(BEAT);
    let beats_in_all = u32::try_from(LASTS.as_millis() / BEAT.as_millis()).unwrap();
    let requests = u32::try_from(BEAT.as_millis()).unwrap() * COMMANDS_A_SECOND / 2 / 1_000;
    for beat in 0..beats_in_all {
        beats.tick().await;
        for n in 0..requests {
            // If the gateways prefer one process, one call in a hundred goes to the other process.
            let is_other = if prefers_one { (beat * requests + n).is_multiple_of(100) } else { n % 2 == 1 };
            let ledger = Arc::clone(&processes[usize::from(is_other)]);
            calls.spawn(request(ledger, account, Arc::clone(&heard)));
        }
    }
    calls.join_all().await;
    let mut heard = heard.lock();
    heard.took.sort_unstable();
    let percentile = |percent: usize| heard.took[(heard.took.len() - 1) * percent / 100];
    let sum = |count: fn(&Counting) -> &AtomicU32| {
        backends.iter().map(|backend| count(backend).load(Ordering::Relaxed)).sum::<u32>()
    };
    let longest = backends.iter().map(|backend| backend.longest.load(Ordering::Relaxed)).max().unwrap();
    println!(
        "round trip {round_trip:?} more, {}: p50 {:?}, p99 {:?}, longest {:?}; {} of {} commits lost, at most {longest} in a row; \
         {} calls failed of {}",
        if prefers_one { "one preferred" } else { "both alike" },
        percentile(50),
        percentile(99),
        percentile(100),
        sum(|backend| &backend.lost),
        sum(|backend| &backend.commits),
        heard.failed,
        heard.took.len(),
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement: run it alone, optimised, with --nocapture"]
async fn two_key_services_on_one_account_are_measured() {
    for round_trip in [Duration::ZERO, Duration::from_millis(1)] {
        for prefers_one in [true, false] {
            measure(round_trip, prefers_one).await;
        }
    }
}
