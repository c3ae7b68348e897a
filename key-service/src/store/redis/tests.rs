//! Reasons for refusing a Redis, and the behaviour of the store when its Redis stops, returns, or has lost data.

use crate::store::suite::act;
use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use ::redis::{Value, cmd};
use shared::{
    clock::{Clock, System},
    ids::{AccountId, GenerationId, KeyId, MemberId, SessionId},
    money::NanoUsd,
    time::Timestamp,
};
use tempfile::TempDir;

use super::{Redis, Settings, failover::Losses};

mod bounds;
mod events;
mod holds;
mod secured;
mod spend;
use crate::store::{
    Accounts, Books, DueHold, Expiring, Keys, Ledger, Members, Order, Page, RecordKind,
    suite::{
        Fault, after, capture, hold,
        in_redis::settings,
        make_key, open_account_with,
        servers::{PATIENCE, RedisServer, Watched, copy},
        spend, tick,
    },
};
use domain::{
    audit::Audit,
    digest::Digest,
    event::Actor,
    key::Status,
    ledger::{
        Command, Outcome, Refused,
        histories::{self, START},
    },
    member::{Member, Role, Session, SignInWay},
    usage::{Day, Sums},
};

impl Redis {
    /// Writes directly, without the ledger.
    pub(in crate::store) async fn doctor(&self, account: AccountId, fault: Fault) {
        let key_space = &self.key_space;
        let ask = async |line: &[&[u8]]| {
            let mut command = cmd(std::str::from_utf8(line[0]).unwrap());
            self.client.ask::<Value>(command.arg(&line[1..])).await.unwrap()
        };
        let hash = key_space.account(account);
        // Adds one to a number of a packed record.
        let raise = async |field: &[u8], number: usize| {
            let record = ask(&[b"HGET", hash.as_bytes(), field]).await;
            let mut record: Vec<u8> = ::redis::from_redis_value(record).unwrap();
            let bytes = &mut record[8 * number..8 * number + 8];
            let raised = f64::from_be_bytes((&*bytes).try_into().unwrap()) + 1.0;
            bytes.copy_from_slice(&raised.to_be_bytes());
            ask(&[b"HSET", hash.as_bytes(), field, &record]).await;
        };
        match fault {
            Fault::Used(key) => raise(key.as_bytes(), 2).await,
            Fault::Credit => raise(b"funds", 0).await,
            Fault::LostEntry(lost) => {
                let journal = key_space.journal(account);
                let page = self.journal(account, 0, usize::MAX).await.unwrap();
                let entry = page.entries.iter().find(|entry| entry.generation == lost).unwrap();
                ask(&[b"XDEL", journal.as_bytes(), entry.number.to_string().as_bytes()]).await;
            }
            Fault::PhantomHold(phantom, like) => {
                let holds = key_space.holds(account);
                let hold = ask(&[b"HGET", holds.as_bytes(), like.as_bytes()]).await;
                let hold: Vec<u8> = ::redis::from_redis_value(hold).unwrap();
                ask(&[b"HSET", holds.as_bytes(), phantom.as_bytes(), &hold]).await;
            }
        }
    }
}

/// A clock that stands still until it is set.
struct Stopped(AtomicI64);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn random(&self, bytes: &mut [u8]) {
        System.random(bytes);
    }
}

fn at(now: Timestamp) -> Arc<dyn Clock> {
    Arc::new(Stopped(AtomicI64::new(now.millis())))
}

async fn open(settings: &Settings) -> Result<Redis, String> {
    Redis::open(settings, at(START)).await.map_err(|e| e.to_string())
}

/// A server, a data directory, and settings for both.
fn place(server: &RedisServer) -> (TempDir, Settings) {
    let data_dir = tempfile::tempdir().unwrap();
    let settings = settings(&server.url(), &data_dir);
    (data_dir, settings)
}

/// Holds and captures `n` generations of one nano-USD each, together.
async fn spend_one_each(store: &Redis, account: AccountId, key: KeyId, n: u8) {
    for n in 0..n {
        let generation = GenerationId::new(after(n.into()), [7; 10]);
        let commands = vec![hold(key, generation, 1, 7), capture(key, generation, 1)];
        let outcomes = store.execute(account, commands, START).await.unwrap();
        assert!(matches!(outcomes[..], [Ok(_), Ok(Outcome::Captured(_))]), "{outcomes:?}");
    }
}

#[tokio::test]
async fn a_redis_that_would_forget_or_evict_is_refused_with_what_to_set() {
    let evicting = RedisServer::start_with(&["--port", "0", "--maxmemory-policy", "allkeys-lru"]);
    let refused = open(&place(&evicting).1).await.err().unwrap();
    assert!(refused.contains("set maxmemory-policy to noeviction"), "{refused}");

    let forgetful = RedisServer::start_with(&["--port", "0", "--appendonly", "no"]);
    let (_data_dir, mut settings) = place(&forgetful);
    let refused = open(&settings).await.err().unwrap();
    assert!(refused.contains("set appendonly to yes"), "{refused}");
    settings.volatile_allowed = true;
    open(&settings).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_user_who_may_not_read_the_configuration_is_enough() {
    let server = RedisServer::start();
    server.ask("ACL SETUSER faregate on >secret ~* &* +@all -@dangerous +info").unwrap();
    let data_dir = tempfile::tempdir().unwrap();
    let with =
        |password: &str| settings(&format!("{}?user=faregate&pass={password}", server.url()), &data_dir);
    let store = open(&with("secret")).await.unwrap();
    open_account_with(&store, 1, 5).await;
    assert!(!open(&with("wrong")).await.err().unwrap().contains("wrong"));
}

#[tokio::test]
async fn what_a_version_without_statuses_and_spend_has_written_is_listed_and_added_up() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    let revoked = make_key(&store, account, 2, None).await;
    store.revoke_key(account, revoked, &act(START)).await.unwrap();
    spend_one_each(&store, account, key, 3).await;
    let day = Day::of(START);
    for name in [format!("spend:{day}"), "keys:active".into(), "keys:revoked".into(), "keys:by-spend".into()]
    {
        server.ask(&format!("DEL {}:{{{account}}}:{name}", settings.prefix)).unwrap();
    }
    let page =
        Page { after: None, order: Order::Ascending, status: Some((Status::Revoked, START)), limit: 9 };
    let listed: Vec<KeyId> = store.keys(account, page).await.unwrap().iter().map(|key| key.id).collect();
    assert_eq!(listed, [revoked]);
    let page = Page { status: Some((Status::Active, START)), ..page };
    assert_eq!(store.keys(account, page).await.unwrap().len(), 1);
    let top = store.top_spending(account, None, 9).await.unwrap();
    assert_eq!(top.iter().map(|key| key.id).collect::<Vec<_>>(), [key]);
    for _ in 0..2 {
        let of_key = store.usage(account, day..=day, Some(&[key])).await.unwrap();
        assert_eq!(of_key[0].counts.charged, NanoUsd::from_nanos(3));
        let spend = store.spend(account, day..=day).await.unwrap();
        let sums = Sums {
            requests: 3,
            tokens: of_key[0].counts.usage.completion + of_key[0].counts.usage.prompt,
            charged: NanoUsd::from_nanos(3),
        };
        assert_eq!((spend.len(), spend[0].sums), (1, sums));
    }
}

#[tokio::test]
async fn a_session_of_an_earlier_version_goes_on() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 1).await;
    let ann = Member {
        id: MemberId::new(START, [1; 10]),
        name: "Ann".into(),
        role: Role::Owner,
        password: None,
        created_at: START,
        last_link: None,
        second_factor: None,
    };
    store.create_member(account, ann.clone(), 9, &act(START)).await.unwrap();
    let (name, id) = (Digest::of(b"session"), SessionId::new(START, [1; 10]));
    let (key, now) = (store.key_space.record(account, RecordKind::Session, &name), START.millis());
    for written in [
        format!(
            "HSET {key} id {id} member {} agent Firefox created_at {now} seen_at {now} expires_at {}",
            ann.id,
            now + 9
        ),
        format!("PEXPIRE {key} 60000"),
    ] {
        server.ask(&written).unwrap();
    }
    for _ in 0..2 {
        let (record, of) = store.record(account, RecordKind::Session, name, START).await.unwrap().unwrap();
        let session = Session::try_from(record).unwrap();
        assert_eq!((of, session.id, session.agent.as_str()), (ann.clone(), id, "Firefox"));
        assert_eq!((session.created_at, session.way), (START, SignInWay::Password));
    }
    assert_ne!(server.ask(&format!("PTTL {key}")).unwrap(), ":-1", "it still expires");
}

#[tokio::test]
async fn while_redis_is_away_calls_fail_in_time_and_afterwards_they_work_again() {
    let mut server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 5).await;
    server.kill();
    let asked = Instant::now();
    let deposit = Command::Deposit {
        id: domain::ledger::histories::deposit(1),
        amount: NanoUsd::from_nanos(1),
        note: String::new(),
        payment_id: None,
        actor: Actor::System,
    };
    store.execute(account, vec![deposit.clone()], START).await.unwrap_err();
    // Gateways wait for 3 s.
    assert!(asked.elapsed() < Duration::from_millis(2_500), "{:?}", asked.elapsed());
    server.start_again();
    let outcomes = store.execute(account, vec![deposit], START).await.unwrap();
    assert_eq!(outcomes, [Ok(Outcome::Deposited(NanoUsd::from_nanos(6)))]);
}

#[tokio::test]
async fn a_redis_that_came_back_older_is_refused_until_an_operator_says_so() {
    let mut server = RedisServer::start();
    let (data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let (snapshot, file) = (data_dir.path().join("snapshot"), data_dir.path().join("redis-seen"));
    server.kill();
    copy(&server.data(), &snapshot);
    server.start_again();
    let later = at(START.plus(Duration::from_mins(2)));
    let newer = Redis::open(&settings, Arc::clone(&later)).await.unwrap();

    server.kill();
    fs::remove_dir_all(server.data()).unwrap();
    copy(&snapshot, &server.data());
    server.start_again();
    // Neither a process that saw the newer data nor a newly started one continues with it.
    let refused = newer.ping().await.unwrap_err().to_string();
    assert!(refused.contains("came back older"), "{refused}");
    let refused = Redis::open(&settings, Arc::clone(&later)).await.err().unwrap().to_string();
    assert!(refused.contains(&format!("delete {}", file.display())), "{refused}");
    drop(store);

    fs::remove_file(file).unwrap();
    Redis::open(&settings, later).await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn a_clock_that_goes_back_closes_nothing() {
    let server = RedisServer::start();
    let (data_dir, settings) = place(&server);
    let serving = open(&settings).await.unwrap();
    let off = |hours: i64| Timestamp::from_millis(START.millis() + hours * 3_600_000);
    // A command beside the key-service whose clock is behind, one whose clock is ahead, and one whose clock was set right.
    for now in [off(-2), off(2), off(0)] {
        Redis::open(&settings, at(now)).await.unwrap();
        assert_eq!(serving.client.mark(off(0)).await.unwrap(), Losses::default());
        serving.ping().await.unwrap();
    }
    let count = || {
        let file = fs::read_to_string(data_dir.path().join("redis-seen")).unwrap();
        file.trim_end().split_once(' ').unwrap().1.parse::<i64>().unwrap()
    };
    let before = count();
    serving.client.mark(off(-2)).await.unwrap();
    serving.client.mark(off(2)).await.unwrap();
    // It goes on by the time between marks, and by no clock.
    assert!((2..60_000).contains(&(count() - before)), "{before}, {}", count());
}

#[tokio::test]
async fn who_only_reads_leaves_no_mark_and_notices_an_older_redis() {
    let server = RedisServer::start();
    let (data_dir, settings) = place(&server);
    let file = data_dir.path().join("redis-seen");
    let reading = Settings { is_marked: false, ..settings.clone() };
    open(&reading).await.unwrap().ping().await.unwrap();
    assert!(!file.exists());
    drop(open(&settings).await.unwrap());
    let later = at(START.plus(Duration::from_hours(2)));
    let before = fs::read_to_string(&file).unwrap();
    let store = Redis::open(&reading, Arc::clone(&later)).await.unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    let mut marks = cmd("HGETALL");
    marks.arg(store.key_space.marks(3));
    let marks: BTreeMap<String, String> = store.client.ask(&marks).await.unwrap();
    let (directory, count) = before.trim_end().split_once(' ').unwrap();
    assert_eq!(marks[directory], count);
    server.ask("FLUSHALL").unwrap();
    let refused = Redis::open(&reading, later).await.err().unwrap().to_string();
    assert!(refused.contains("came back older") && refused.contains("no mark"), "{refused}");
}

#[tokio::test]
async fn a_failover_to_a_replica_that_is_in_step_loses_nothing() {
    let watched = Watched::start();
    let data_dir = tempfile::tempdir().unwrap();
    let store = open(&settings(&watched.url(), &data_dir)).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    spend_one_each(&store, account, key, 3).await;
    watched.fail_over();
    spend_one_each(&store, account, key, 5).await;
    // The first three were captured before, and are not billed again.
    assert_eq!(spend(&store, account, key).await.budget.used, NanoUsd::from_nanos(5));
}

#[tokio::test]
async fn a_replica_that_took_over_and_what_it_had_not_received_are_reported() {
    let watched = Watched::start();
    let data_dir = tempfile::tempdir().unwrap();
    // No marks but those of this test: whichever comes first finds the losses.
    let settings = Settings { is_marked: false, ..settings(&watched.url(), &data_dir) };
    let store = open(&settings).await.unwrap();
    let losses = async |at| store.client.mark(at).await.unwrap();
    assert_eq!(losses(after(5)).await, Losses::default());
    let account = open_account_with(&store, 1, 100).await;
    watched.fail_over();
    let began = Instant::now();
    loop {
        // A write finds the new master, as soon as the old one has become its replica.
        let _ = store.execute(account, vec![Command::Tick { seen: None }], START).await;
        if store.client.mark(after(10)).await.is_ok_and(|losses| losses.promoted == 1) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the new master is not noticed");
    }
    // As if the replica had missed the last two marks of one part.
    let mut forget = cmd("HSET");
    let file = fs::read_to_string(data_dir.path().join("redis-seen")).unwrap();
    let (directory, count) = file.trim_end().split_once(' ').unwrap();
    let count = count.parse::<i64>().unwrap() - 10_000;
    forget.arg(store.key_space.marks(3)).arg(directory).arg(count);
    store.client.ask::<Value>(&forget).await.unwrap();
    assert_eq!(losses(after(15)).await, Losses { promoted: 0, forgotten: Duration::from_secs(10) });
    assert_eq!(losses(after(20)).await, Losses::default(), "reported once");
}

#[tokio::test]
async fn a_crash_is_not_taken_for_a_restored_snapshot() {
    let mut server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = Redis::open(&settings, Arc::new(System)).await.unwrap();
    server.kill();
    server.start_again();
    store.ping().await.unwrap();
    Redis::open(&settings, Arc::new(System)).await.unwrap();
}

#[tokio::test]
async fn a_journal_that_is_full_drops_its_oldest_entries_and_still_proves_the_rest() {
    let server = RedisServer::start_with(&["--port", "0", "--stream-node-max-entries", "5"]);
    let (_data_dir, settings) = place(&server);
    let store = open(&Settings { journal_entries: 10, ..settings }).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    spend_one_each(&store, account, key, 27).await;
    assert_eq!(spend(&store, account, key).await.budget.used, NanoUsd::from_nanos(27));
    // Redis drops whole nodes of the stream, so it may keep more entries than configured, never fewer.
    let page = store.journal(account, 3, 9).await.unwrap();
    assert_eq!((page.gone_until, page.entries.len(), page.entries[0].number), (15, 9, 16));
    let last = store.journal(account, 25, 9).await.unwrap();
    assert_eq!(last.entries.iter().map(|entry| entry.number).collect::<Vec<_>>(), [26, 27]);
    assert_eq!(
        store.audit(account).await.unwrap().unwrap(),
        Audit { entries: 12, keys: 1, groups: 0, wrong: Vec::new() }
    );
    // A settled generation is still remembered.
    let first = GenerationId::new(START, [7; 10]);
    store.execute(account, vec![capture(key, first, 1)], START).await.unwrap();
    assert_eq!(spend(&store, account, key).await.budget.used, NanoUsd::from_nanos(27));
}

#[tokio::test]
async fn an_audit_is_right_while_entries_make_room() {
    let server = RedisServer::start_with(&["--port", "0", "--appendonly", "no"]);
    let (_data_dir, settings) = place(&server);
    let settings = Settings { journal_entries: 3_000, volatile_allowed: true, ..settings };
    let store = Arc::new(open(&settings).await.unwrap());
    let account = open_account_with(&*store, 1, 1_000_000).await;
    let key = make_key(&*store, account, 1, None).await;
    let spender = Arc::clone(&store);
    let spending = tokio::spawn(async move {
        for turn in 0..250_u8 {
            let generations = (0..100_u8).map(|n| GenerationId::new(after(u64::from(n)), [turn; 10]));
            let commands = generations.flat_map(|g| [hold(key, g, 3, 7), capture(key, g, 2)]).collect();
            spender.execute(account, commands, START).await.unwrap();
        }
    });
    let mut audits = 0;
    while !spending.is_finished() {
        let audit = store.audit(account).await.unwrap().unwrap();
        assert_eq!(audit.wrong, []);
        audits += 1;
    }
    spending.await.unwrap();
    assert!(audits > 1, "nothing was spent meanwhile");
    let audit = store.audit(account).await.unwrap().unwrap();
    assert!((3_000..10_000).contains(&audit.entries), "{}", audit.entries);
    assert_eq!(audit.wrong, []);
    assert_eq!(spend(&*store, account, key).await.budget.used, NanoUsd::from_nanos(50_000));
}

#[tokio::test]
async fn counters_are_forgotten_after_their_days() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&Settings { usage_days: 2, ..settings }).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    spend_one_each(&store, account, key, 1).await;
    let left = server.ask(&format!("TTL {}", store.key_space.counters(account, Day::of(START)))).unwrap();
    let left: u64 = left.trim_start_matches(':').parse().unwrap();
    assert!((3 * 86_400 - 60..=3 * 86_400).contains(&left), "{left}");
}

#[tokio::test]
async fn what_cannot_be_read_is_the_answer_to_its_own_command_alone() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    let [damaged, sound] = [1, 2].map(|n| GenerationId::new(START, [n; 10]));
    let holds = store.key_space.holds(account);
    let mut put = cmd("HSET");
    put.arg(holds).arg(damaged.as_bytes()).arg("nonsense");
    store.client.ask::<Value>(&put).await.unwrap();
    let commands = vec![hold(key, damaged, 1, 1), hold(key, sound, 1, 1)];
    let outcomes = store.execute(account, commands.clone(), START).await.unwrap();
    assert_eq!(outcomes, [Err(Refused::Damaged), Ok(histories::held(NanoUsd::from_nanos(1)))]);
    let alone = store.execute(account, commands[..1].to_vec(), START).await.unwrap();
    assert_eq!(alone, [Err(Refused::Damaged)]);
    assert_eq!(spend(&store, account, key).await.budget.held, NanoUsd::from_nanos(1));
    // The damaged hold hides no other due hold.
    tick(&store, account, 1).await;
    let due = store.due_holds(account, None).await.unwrap().holds;
    assert_eq!(due.len(), 2);
    assert!(due.contains(&DueHold { key, generation: sound }), "{due:?}");
    let expired = store.execute(account, vec![Command::Expire { key, generation: damaged }], START).await;
    assert_eq!(expired.unwrap(), [Err(Refused::Damaged)]);
}

#[tokio::test]
async fn an_account_without_holds_leaves_the_index_when_its_time_is_over() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let clock = Arc::new(Stopped(AtomicI64::new(START.millis())));
    let store = Redis::open(&settings, clock.clone()).await.unwrap();
    let account = open_account_with(&store, 1, 100).await;
    let key = make_key(&store, account, 1, None).await;
    let generation = GenerationId::new(START, [1; 10]);
    let listed = async || store.accounts_with_holds().await.accounts;
    let wait = |seconds| clock.0.store(after(seconds).millis(), Ordering::Relaxed);
    store.execute(account, vec![hold(key, generation, 1, 7)], START).await.unwrap();
    wait(10_000);
    assert_eq!(listed().await, [account]);
    store.execute(account, vec![Command::Release { key, generation }], START).await.unwrap();
    wait(599);
    assert_eq!(listed().await, [account]);
    wait(601);
    assert_eq!(listed().await, []);
    // A process that has not listed the account in the last minute lists it again.
    let (_other_dir, other) = place(&server);
    let other = open(&Settings { prefix: settings.prefix, ..other }).await.unwrap();
    let generation = GenerationId::new(START, [2; 10]);
    other.execute(account, vec![hold(key, generation, 1, 7)], START).await.unwrap();
    assert_eq!(listed().await, [account]);
}

#[tokio::test]
async fn a_redis_that_still_loads_its_data_is_waited_for() {
    let mut server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let store = open(&settings).await.unwrap();
    let account = open_account_with(&store, 1, 5).await;
    drop(store);
    let mut fill = cmd("EVAL");
    fill.arg("for n = 1, 30000 do redis.call('SET', 'filler' .. n, string.rep('x', 100)) end").arg(0);
    let client = ::redis::Client::open(server.url()).unwrap();
    fill.query::<()>(&mut client.get_connection().unwrap()).unwrap();
    server.kill();
    // Redis pauses this many microseconds per key while loading, and serves its connections after every thousand keys.
    server.start_loading(&["--key-load-delay", "100"]);
    let store = open(&settings).await.unwrap();
    let waiting = store.ping().await.unwrap_err().to_string();
    assert!(waiting.contains("still loads"), "{waiting}");
    assert!(store.clock_skew().await.is_err());
    let asked = Instant::now();
    while store.ping().await.is_err() {
        assert!(asked.elapsed() < PATIENCE, "it never came back");
    }
    assert_eq!(store.accounts().await.unwrap()[0].id, account);
}

#[tokio::test]
async fn data_of_an_earlier_layout_is_refused_with_what_to_do() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let earlier = format!("HSET {}:{{accounts}}:names Customer acct_1", settings.prefix);
    server.ask(&earlier).unwrap();
    let refused = open(&settings).await.err().unwrap();
    assert!(refused.contains("layout of an earlier version") && refused.contains("FAREGATE_REDIS_PREFIX"));
    let (_data_dir, other) = place(&server);
    open(&other).await.unwrap();
    open(&other).await.unwrap();
    server.ask(&format!("SET {}:schema 3", other.prefix)).unwrap();
    assert!(open(&other).await.err().unwrap().contains("layout 3"));
}

#[tokio::test]
async fn clocks_are_compared_with_that_of_redis() {
    let server = RedisServer::start();
    let (_data_dir, settings) = place(&server);
    let near = Redis::open(&settings, Arc::new(System)).await.unwrap();
    let skew = near.clock_skew().await.unwrap().unwrap();
    assert!(skew.millis.abs() < 1_000, "{skew:?}");
    let (_data_dir, settings) = place(&server);
    let ahead = at(System.now().plus(Duration::from_secs(40)));
    let skew = Redis::open(&settings, ahead).await.unwrap().clock_skew().await.unwrap().unwrap();
    assert!((38_000..42_000).contains(&skew.millis), "{skew:?}");
}
