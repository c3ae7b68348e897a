//! Accounts distributed over a cluster's masters, and the loss of one master.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::json;
use shared::money::NanoUsd;
use tests::{
    harness::{Account, ApiKey, Deployment, Form, LOOK_EVERY, Loss, Options, PATIENCE, Stack, cost_of, usd},
    upstream::Script,
};
use tokio::time::sleep;

use super::faults::outages::{LEASE, heals};

/// Number of accounts: so many that each of the three masters has some, except with a probability of one in 10¹⁵.
const ACCOUNTS: usize = 72;
/// Number of accounts that send requests, each with its own key.
const BUSY: usize = 12;
/// Time within which an answered write has reached the replica.
const REPLICATED: Duration = Duration::from_secs(1);

async fn over(redis: Form) -> Stack {
    let deployment = Deployment::Services { gateways: 2, key_services: 2, redis };
    Stack::with(Options { deployment, lease: LEASE, ..Options::default() }).await
}

#[apply(fact)]
async fn accounts_lie_on_every_master_and_each_is_billed_exactly() {
    let stack = over(Form::Cluster).await;
    let keys = keys_of_many_accounts(&stack, ACCOUNTS).await;
    let answers = join_all(keys.iter().map(|key| stack.call(key, Script::tokens(12, 5)).send())).await;
    for (answer, key) in answers.iter().zip(&keys) {
        assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
        assert_eq!(stack.used(key).await, cost_of(12, 5));
    }
    for master in 0..stack.redis().masters() {
        let names = stack.redis().ask(master, "KEYS *acct_*");
        assert!(names.contains("acct_"), "master {master} has no account: {names}");
    }
}

/// A replica lags behind its master. Writes that the master acknowledged but had not replicated are lost with it.
/// Charges that were answered shortly before may be lost, but nothing is billed that was not served.
#[apply(fact)]
async fn a_master_that_is_lost_is_replaced_and_takes_at_most_its_last_moment_with_it() {
    let stack = over(Form::ClusterWithReplicas).await;
    // The harness would fail if charges are lost, which this test measures itself.
    stack.others_spend();
    let keys = keys_of_many_accounts(&stack, BUSY).await;
    let told: Vec<Mutex<Vec<Instant>>> = keys.iter().map(|_| Mutex::default()).collect();
    let stop = AtomicBool::new(false);
    let client = async |(key, told): (&ApiKey, &Mutex<Vec<Instant>>)| {
        while !stop.load(Ordering::Relaxed) {
            let answer = stack.call(key, Script::tokens(12, 5)).send().await;
            if answer.status == 200 {
                told.lock().unwrap().push(Instant::now());
            } else {
                answer.assert_error(503, "service_unavailable");
            }
        }
    };
    let loss = async {
        sleep(REPLICATED * 2).await;
        let killed = Instant::now();
        let lost = stack.redis().begin_to_lose(0, Loss::Killed);
        stack.redis().taken_over(0, lost).await;
        for key in &keys {
            heals(&stack, key).await;
        }
        stop.store(true, Ordering::Relaxed);
        (killed, killed.elapsed())
    };
    let (_, (killed, away)) = tokio::join!(join_all(keys.iter().zip(&told).map(client)), loss);
    stack.released(LEASE * 4).await;

    let (mut answered, mut missing, mut billed_in_all) = (0, 0, 0);
    for (key, told) in keys.iter().zip(told) {
        let told = told.into_inner().unwrap();
        let used = stack.used(key).await;
        // `heals` sends one more request to each gateway, after some requests that may have been served without an
        // answer in time.
        let billed = used.nanos() / cost_of(12, 5).nanos();
        assert_eq!(used, times(billed), "no charge is cut");
        let just_before = told.iter().filter(|at| **at <= killed && **at + REPLICATED > killed).count();
        let healed = i64::try_from(told.len() + stack.gateways.len()).unwrap();
        let gone = (healed - billed).max(0);
        assert!(
            gone <= i64::try_from(just_before).unwrap(),
            "{gone} charges are lost, {just_before} were new"
        );
        billed_in_all += usize::try_from(billed).unwrap();
        answered += told.len();
        missing += gone;
    }
    let served = stack.upstream.generations().len();
    assert!(billed_in_all <= served, "{billed_in_all} charges for {served} answers");
    println!("{missing} of {answered} charges went with the master; its accounts were away for {away:?}");
}

/// A master stopped by a signal keeps its connections open and accepts new ones.
#[apply(fact)]
async fn a_master_that_hangs_is_left_for_its_replica_and_holds_up_no_other_account() {
    let stack = over(Form::ClusterWithReplicas).await;
    // The replica may lack the latest writes.
    stack.others_spend();
    let keys = keys_of_many_accounts(&stack, BUSY).await;
    for key in &keys {
        heals(&stack, key).await;
    }
    sleep(REPLICATED).await;
    let lost = stack.redis().begin_to_lose(0, Loss::Hung);
    stack.redis().taken_over(0, lost).await;
    for key in &keys {
        heals(&stack, key).await;
    }
    ready_without(&stack, None).await;
    stack.redis().come_back(lost, Loss::Hung).await;
    for key in &keys {
        heals(&stack, key).await;
    }
    stack.released(LEASE * 4).await;
    for key in &keys {
        assert!(stack.used(key).await <= stack.cost_of_served(key), "nothing is billed that was not served");
    }
}

#[apply(fact)]
async fn without_one_master_the_accounts_of_the_others_are_served_and_a_key_service_comes_up() {
    let stack = over(Form::Cluster).await;
    let keys = keys_of_many_accounts(&stack, 2 * BUSY).await;
    for key in &keys {
        heals(&stack, key).await;
    }
    stack.redis().kill_node(2);
    let address = stack.redis().url().rsplit(',').next().unwrap().to_owned();
    ready_without(&stack, Some(&address)).await;
    let statuses = join_all(keys.iter().map(|key| status(&stack, key))).await;
    let of =
        |status: u16| keys.iter().zip(&statuses).filter(move |(_, it)| **it == status).map(|(key, _)| key);
    let (living, dead): (Vec<_>, Vec<_>) = (of(200).collect(), of(503).collect());
    assert!(!dead.is_empty() && living.len() + dead.len() == keys.len(), "{statuses:?}");
    assert!(living.len() >= 4, "two masters are left: {statuses:?}");

    // Requests for accounts on the lost master must not delay other requests.
    let stop = AtomicBool::new(false);
    let of_the_dead = join_all(dead.iter().map(async |key| {
        while !stop.load(Ordering::Relaxed) {
            stack.call(key, Script::tokens(12, 5)).send().await.assert_error(503, "service_unavailable");
        }
    }));
    let of_the_living = async {
        for _ in 0..10 {
            let answered = join_all(living.iter().map(|key| stack.call(key, Script::tokens(12, 5)).send()));
            for answer in answered.await {
                assert_eq!((answer.status, answer.cost()), (200, cost_of(12, 5)), "{answer}");
            }
        }
        for key_service in &stack.key_services {
            key_service.restart().await;
        }
        ready_without(&stack, Some(&address)).await;
        // This gateway has no credentials in its cache, and those of some accounts are on a master that does not
        // answer.
        let statuses = join_all(living.iter().map(|key| status(&stack, key))).await;
        assert!(statuses.contains(&200), "{statuses:?}");
        stop.store(true, Ordering::Relaxed);
    };
    tokio::join!(of_the_dead, of_the_living);
    stack.redis().restart_node(2).await;
    for key in &keys {
        heals(&stack, key).await;
    }
    ready_without(&stack, None).await;
    stack.released(LEASE * 4).await;
    for key in &keys {
        assert_eq!(stack.used(key).await, stack.cost_of_served(key));
    }
}

async fn status(stack: &Stack, key: &ApiKey) -> u16 {
    stack.call(key, Script::tokens(12, 5)).send().await.status
}

/// Waits until every key-service is ready and reports this master as missing, or no master if `master` is `None`.
async fn ready_without(stack: &Stack, master: Option<&str>) {
    for key_service in &stack.key_services {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = stack.http.get(&format!("{}/readyz", key_service.admin())).await;
            let says = answer.text();
            let is_so = master.map_or_else(|| says == "ready\n", |master| says.contains(master));
            if answer.status == 200 && is_so {
                break;
            }
            assert!(Instant::now() < deadline, "{answer}");
            sleep(LOOK_EVERY).await;
        }
    }
}

/// Slots move while requests run, as when an operator adds or removes a master.
#[apply(fact)]
async fn a_third_of_the_slots_moves_under_load_and_each_request_is_billed_exactly() {
    let stack = over(Form::Cluster).await;
    let keys = keys_of_many_accounts(&stack, BUSY).await;
    let stop = Arc::new(AtomicBool::new(false));
    let client = async |key: &ApiKey| {
        let (mut answered, mut refused) = (0, 0);
        while !stop.load(Ordering::Relaxed) {
            let answer = stack.call(key, Script::tokens(12, 5)).send().await;
            if answer.status == 200 {
                answered += 1;
            } else {
                answer.assert_error(503, "service_unavailable");
                refused += 1;
            }
        }
        (answered, refused)
    };
    let moving = async {
        sleep(REPLICATED).await;
        stack.redis().move_slots_from(0).await;
        for key in &keys {
            heals(&stack, key).await;
        }
        stop.store(true, Ordering::Relaxed);
    };
    // Reads must also find the moved slots.
    let (settings, is_over) = (stack.operator().clone(), Arc::clone(&stop));
    let auditing = tokio::task::spawn_blocking(move || {
        let mut audits = 0;
        while !is_over.load(Ordering::Relaxed) {
            let (status, printed, error) = settings.try_cli(&["audit"]);
            assert!(status.success(), "{printed}{error}");
            audits += 1;
        }
        audits
    });
    let (answered, ()) = tokio::join!(join_all(keys.iter().map(client)), moving);
    assert!(auditing.await.unwrap() > 0, "no audit ran meanwhile");
    stack.released(LEASE * 4).await;
    for (key, (answered, refused)) in keys.iter().zip(&answered) {
        assert!(answered > refused, "{refused} of {answered} requests were refused");
        assert_eq!(stack.used(key).await, stack.cost_of_served(key));
    }
    // On a busy machine, an answer may take longer than a client waits for one.
    let mut answers =
        (0..10).map(|_| stack.redis().ask(0, "KEYS *acct_*")).filter(|answer| !answer.is_empty());
    let left = answers.next().expect("the first master answers");
    // A master without slots becomes a replica of another one, and then has the other master's records.
    let is_replica = stack.redis().ask(0, "ROLE").contains("slave");
    assert!(left.starts_with("*0") || is_replica, "the first master has records of accounts left: {left}");
    let sum = |of: fn(&(u64, u64)) -> u64| answered.iter().map(of).sum::<u64>();
    println!("{} requests answered, {} refused while slots moved", sum(|it| it.0), sum(|it| it.1));
}

async fn keys_of_many_accounts(stack: &Stack, count: usize) -> Vec<ApiKey> {
    let accounts: Vec<Account> =
        (0..count).map(|number| stack.open_account(&format!("account {number}"), usd("1"))).collect();
    join_all(accounts.iter().map(|account| stack.key_of(account, json!({})))).await
}

fn times(count: i64) -> NanoUsd {
    NanoUsd::from_nanos(cost_of(12, 5).nanos() * count)
}
