//! Replicas that the services wait for. Everything that was answered survives the loss of the master, and clients leave
//! a master that is cut off.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tests::{
    harness::{
        Deployment, Form, LOOK_EVERY, Loss, Options, PATIENCE, SERVER_PATIENCE, Stack, cost_of, until, usd,
    },
    upstream::Script,
};
use tokio::time::sleep;

use super::from_environment;

/// Number of masters that are lost, unless `FAREGATE_TEST_FAILOVERS` sets another.
const FAILOVERS: u64 = 5;
/// Number of clients, each of which sends one request after the other.
const CLIENTS: usize = 8;

async fn replicated() -> Stack {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::WithReplica };
    let env = vec![("FAREGATE_REDIS_WAIT_REPLICAS", "1".to_owned())];
    Stack::with(Options { deployment, env, ..Options::default() }).await
}

async fn becomes_ready(stack: &Stack, status: u16) {
    let deadline = Instant::now() + PATIENCE;
    let url = format!("{}/readyz", stack.key_services[0].admin());
    while stack.http.get(&url).await.status != status {
        assert!(Instant::now() < deadline, "readiness is not {status}");
        sleep(LOOK_EVERY).await;
    }
}

#[apply(fact)]
async fn with_too_few_replicas_nothing_is_served_and_finished_charges_wait_until_they_are_back() {
    let stack = replicated().await;
    let key = stack.key().await;
    becomes_ready(&stack, 200).await;
    let mut stream = stack.call(&key, Script::tokens(12, 40).pace(50)).stream().await;
    stream.read_tokens(5).await;

    stack.redis().hang_replica();
    becomes_ready(&stack, 503).await;
    stack.call(&key, Script::tokens(12, 5)).send().await.assert_error(503, "service_unavailable");
    let ended = stream.rest().await;
    assert_eq!(ended.assert_done().tokens(), 40, "its charge waits in the gateway's spool");
    let spooled = stack.gateways[0].settings().data.join("data");
    let spooled = stack.cli(&["spool", "list", "--of", &spooled.display().to_string()]);
    assert!(spooled.contains(&key.id) || spooled.contains("gen_"), "{spooled}");

    stack.redis().resume_replica();
    becomes_ready(&stack, 200).await;
    let answer = stack.call(&key, Script::tokens(12, 5)).send().await;
    assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
    stack.released(PATIENCE).await;
    assert_eq!(stack.used(&key).await.nanos(), cost_of(12, 40).nanos() + cost_of(12, 5).nanos());
}

#[apply(fact)]
async fn no_charge_is_lost_with_a_master_whose_replica_takes_over() {
    let stack = replicated().await;
    keeps_every_charge(&stack, async || stack.redis().fail_over().await).await;
}

/// Commands that both the master and the key-service had in flight arrive only when another server is the master. The
/// services wait for both replicas, because either of them may take over.
#[apply(fact)]
async fn no_charge_is_lost_with_a_master_that_stands_still_for_a_while_together_with_a_key_service() {
    let deployment = Deployment::Services { gateways: 1, key_services: KEY_SERVICES, redis: Form::Watched };
    let env = vec![("FAREGATE_REDIS_WAIT_REPLICAS", "2".to_owned())];
    let stack = Stack::with(Options { deployment, env, ..Options::default() }).await;
    let pause = async || {
        let redis = stack.redis();
        stack.key_services[0].hang();
        let lost = redis.begin_to_lose(0, Loss::Hung);
        redis.taken_over(0, lost).await;
        stack.key_services[0].resume();
        redis.come_back(lost, Loss::Hung).await;
    };
    keeps_every_charge(&stack, pause).await;
}

/// Loses masters in this way while clients send requests. Then compares the charges with the answers.
async fn keeps_every_charge(stack: &Stack, lose: impl AsyncFn()) {
    let failovers = from_environment("FAREGATE_TEST_FAILOVERS", FAILOVERS);
    stack.add_credit(&stack.account, usd("100"), "");
    let keys = join_all((0..CLIENTS).map(|_| stack.key())).await;
    let (over, answered, refused) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let masters = async {
        for _ in 0..failovers {
            let before = answered.load(Ordering::Relaxed);
            lose().await;
            let deadline = Instant::now() + PATIENCE;
            // Before the next loss, there must be charges that only the present master has answered.
            while answered.load(Ordering::Relaxed) < before + CLIENTS {
                assert!(Instant::now() < deadline, "nothing is served after a failover");
                sleep(LOOK_EVERY).await;
            }
        }
        over.store(true, Ordering::Relaxed);
    };
    let clients = keys.iter().map(async |key| {
        while !over.load(Ordering::Relaxed) {
            let answer = stack.call(key, Script::tokens(12, 5)).send().await;
            if answer.status == 200 {
                answered.fetch_add(1, Ordering::Relaxed);
            } else {
                assert_eq!(answer.status, 503, "{answer}");
                refused.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(50)).await;
            }
        }
    });
    tokio::join!(masters, join_all(clients));
    stack.released(PATIENCE).await;
    let (answered, refused) = (answered.into_inner(), refused.into_inner());
    println!("{failovers} failovers, {answered} answered and charged, {refused} refused");
    let due = cost_of(12, 5).nanos() * i64::try_from(answered).unwrap();
    let charged = async || {
        let used = join_all(keys.iter().map(|key| stack.used(key))).await;
        used.iter().map(|used| used.nanos()).sum::<i64>()
    };
    // Charges for answers that ended during a failover are delivered from the spool.
    let deadline = Instant::now() + PATIENCE;
    while charged().await < due && Instant::now() < deadline {
        sleep(LOOK_EVERY).await;
    }
    assert_eq!(charged().await, due, "each answer was charged once");
}

/// Number of key-services in an installation whose master is cut off or stands still.
const KEY_SERVICES: usize = 2;
/// Time within which a charge that was answered has reached the replicas. It is also the time within which an answer is
/// written.
const REPLICATED: Duration = Duration::from_secs(1);

/// Cuts the master off from its replicas and its Sentinel, but not from the key-services. Counts the charges that are
/// lost.
async fn a_master_that_only_key_services_reach(min_replicas: u32) {
    let deployment = Deployment::Services { gateways: 1, key_services: KEY_SERVICES, redis: Form::Watched };
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    // If charges are lost, the checks of the harness would fail. This test itself counts how many are lost.
    stack.others_spend();
    let redis = stack.redis();
    for server in 0..redis.pids().len() {
        redis.ask(server, &format!("CONFIG SET min-replicas-to-write {min_replicas}"));
    }
    let keys = join_all((0..CLIENTS).map(|_| stack.key())).await;
    let told: Vec<Mutex<Vec<Instant>>> = keys.iter().map(|_| Mutex::default()).collect();
    let over = AtomicBool::new(false);
    let clients = keys.iter().zip(&told).map(async |(key, told)| {
        while !over.load(Ordering::Relaxed) {
            let answer = stack.call(key, Script::tokens(12, 5)).send().await;
            if answer.status == 200 {
                told.lock().unwrap().push(Instant::now());
            } else {
                assert_eq!(answer.status, 503, "{answer}");
                sleep(LOOK_EVERY).await;
            }
        }
    });
    let answered = || told.iter().map(|told| told.lock().unwrap().len()).sum::<usize>();
    let cut = async {
        sleep(REPLICATED).await;
        let cut = Instant::now();
        let lost = redis.begin_to_lose(0, Loss::CutOff);
        redis.taken_over(0, lost).await;
        // The master that is cut off still answers, but no client may stay connected to it.
        let deadline = Instant::now() + SERVER_PATIENCE;
        let serve = |server| redis.ask(server, "CLIENT LIST").matches("name=faregate:fg").count();
        while (0..redis.pids().len()).filter(|server| *server != lost).map(serve).sum::<usize>()
            < KEY_SERVICES
        {
            assert!(Instant::now() < deadline, "key-services stay with the master that is cut off");
            sleep(LOOK_EVERY).await;
        }
        let (left, before) = (Instant::now(), answered());
        while answered() < before + 10 * CLIENTS {
            assert!(Instant::now() < deadline, "nothing is served by the new master");
            sleep(LOOK_EVERY).await;
        }
        over.store(true, Ordering::Relaxed);
        (cut, left, lost)
    };
    let (_, (cut, left, lost)) = tokio::join!(join_all(clients), cut);
    redis.come_back(lost, Loss::CutOff).await;
    stack.released(PATIENCE).await;
    // If a master refuses writes while it has no replicas, only what was in flight is lost with it.
    let until = if min_replicas == 0 { left } else { cut };
    let mut gone = 0;
    for (key, told) in keys.iter().zip(told) {
        let told = told.into_inner().unwrap();
        let used = stack.used(key).await.nanos();
        let billed = usize::try_from(used / cost_of(12, 5).nanos()).unwrap();
        let recent = told.iter().filter(|at| **at + REPLICATED > cut && **at < until + REPLICATED).count();
        assert!(
            told.len().saturating_sub(billed) <= recent,
            "{billed} of {} are billed, {recent} were new",
            told.len()
        );
        assert!(used <= stack.cost_of_served(key).nanos(), "nothing is billed that was not served");
        gone += told.len().saturating_sub(billed);
    }
    println!("{gone} charges went with the master; it was left after {:?}", left - cut);
    let counted = stack.key_services.iter().map(async |server| {
        let metrics = stack.http.get(&format!("{}/metrics", server.admin())).await.text().to_owned();
        metrics.lines().any(|line| line.starts_with("keyservice_store_failovers_total 1"))
    });
    assert_eq!(join_all(counted).await, [true; KEY_SERVICES], "each key-service counts it");
}

#[apply(fact)]
async fn a_master_that_only_key_services_reach_and_that_refuses_writes_is_left() {
    a_master_that_only_key_services_reach(1).await;
}

#[apply(fact)]
async fn a_master_that_only_key_services_reach_and_that_takes_writes_is_left() {
    a_master_that_only_key_services_reach(0).await;
}

#[apply(fact)]
async fn after_a_failover_that_lost_entries_no_export_passes_over_the_bills_that_got_their_numbers() {
    let deployment = Deployment::Services { gateways: 1, key_services: 1, redis: Form::WithReplica };
    let stack = Stack::with(Options { deployment, ..Options::default() }).await;
    stack.others_spend();
    let key = stack.key().await;
    let serve = async |count: usize| {
        for _ in 0..count {
            let deadline = Instant::now() + PATIENCE;
            while stack.call(&key, Script::tokens(12, 5)).send().await.status != 200 {
                assert!(Instant::now() < deadline, "nothing is served");
                sleep(LOOK_EVERY).await;
            }
        }
        stack.released(PATIENCE).await;
    };
    let export = |after: u64| {
        let after = after.to_string();
        let export = ["journal", "export", "--account", &stack.account.name, "--after", &after];
        let (status, printed, error) = stack.operator().try_cli(&export);
        let seqs: Vec<u64> = printed
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["seq"].as_u64().unwrap())
            .collect();
        if status.success() { Ok(seqs) } else { Err(error) }
    };
    serve(3).await;
    // Without the key-service's mark, the replica would be refused as a Redis with older data.
    let seen = stack.key_services[0].settings().data.join("data/redis-seen");
    until("the key-service to mark Redis", async || seen.exists()).await;
    stack.redis().split().await;
    serve(2).await;
    assert_eq!(export(0), Ok(vec![1, 2, 3, 4, 5]));
    let lost = stack.redis().begin_to_lose(0, Loss::Killed);
    stack.redis().taken_over(0, lost).await;
    serve(4).await;

    let refused = export(5).unwrap_err();
    assert!(refused.contains("a Redis replica took over, so 5 may have been lost"), "{refused}");
    let (_, sure) = refused.trim_end().rsplit_once("--after ").unwrap();
    let again = export(sure.parse().unwrap()).unwrap();
    assert!(again.len() >= 4 && again.is_sorted() && *again.last().unwrap() > 1_000_000, "{again:?}");
    assert_eq!(export(*again.last().unwrap()), Ok(Vec::new()));
    serve(1).await;
    assert_eq!(export(*again.last().unwrap()).unwrap().len(), 1);
    stack.redis().come_back(lost, Loss::Killed).await;
}
