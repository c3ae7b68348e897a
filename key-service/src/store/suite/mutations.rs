//! Mutation test of the random histories: each of these faults, planted in the script, is caught.

use std::{sync::Arc, time::Duration};

use proptest::{
    strategy::{Just, Strategy},
    test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner},
};
use shared::{clock::System, ids::AccountId, money::NanoUsd, tokens::Usage};
use tempfile::TempDir;

use super::{Fault, Subject, in_redis::settings, servers::RedisServer, spending::live};
use crate::store::{
    Store,
    redis::{LEDGER, Redis},
};
use domain::{
    key::KeyPatch,
    ledger::{
        Command, Progress,
        histories::{Clock, START, Step, account, deposit, generation, history, key},
    },
};

/// Number of histories within which a fault must show, always the same histories. Most faults show in the first ten.
const HISTORIES: u32 = 400;

/// A fault: name, correct text, and replacement.
const FAULTS: [(&str, &str, &str); 66] = [
    ("a key at its limit may spend", "key.used >= key.limit", "key.used > key.limit"),
    ("the last of a limit cannot be spent", "left_of_limit < least", "left_of_limit <= least"),
    ("the last of the credit cannot be spent", "account.credit < least", "account.credit <= least"),
    (
        "without credit one may spend",
        "account.credit <= 0 then return 'credit_empty'",
        "account.credit < 0 then return 'credit_empty'",
    ),
    ("a key's expiry is not checked", "if key.expires_at <= now then return 'key_expired' end", ""),
    ("a key may spend at its very expiry", "key.expires_at <= now", "key.expires_at < now"),
    ("a revoked key may spend", "if key.revoked_at < NEVER then return 'revoked' end", ""),
    ("holds of a key may pass its limit", "key.limit - key.used - key.held", "key.limit - key.used"),
    ("holds of an account may pass its credit", "account.credit - account.held", "account.credit"),
    ("less than enough is held", "if enough < least then enough = least end", "enough = least"),
    ("a hold takes one too much", "local amount = min(most, free)", "local amount = min(most, free + 1)"),
    ("a hold takes no more than it must", "if most < least then most = least end", "most = least"),
    (
        "a hold sent again holds again",
        "if holds[n] then\n    local held_for, amount = read_hold(holds[n])\n    return is_of(held_for, key) and amount or 'gone'\n  end",
        "",
    ),
    ("a settled generation is held again", "if settlement_of(n) then return 'gone' end", ""),
    ("a hold is not set aside", "account.held, key.held = account.held + amount, key.held + amount", ""),
    (
        "an extension lowers a hold",
        "min(left_after(most, amount), available(key))",
        "min(most - amount, available(key))",
    ),
    (
        "a revoked key's holds grow",
        "if key.revoked_at == NEVER then\n    local more",
        "if true then\n    local more",
    ),
    (
        "a revoked key's extension looks like another",
        "if key.revoked_at < NEVER then return 'revoked ' .. written(amount) end",
        "",
    ),
    ("a report that was overtaken counts", "if cost < cost_before then", "if false then"),
    (
        "a lease gets shorter",
        "math.max(lease_until, account.tick + lease_ticks)",
        "account.tick + lease_ticks",
    ),
    (
        "a lease begins at the first tick",
        "account.tick + lease_ticks) .. NOTHING_USED",
        "lease_ticks) .. NOTHING_USED",
    ),
    ("what a hold does not cover is not billed", "min(cost, amount + available(key))", "amount"),
    (
        "more is billed than is left",
        "if cost > amount then charged = min(cost, amount + available(key)) end",
        "",
    ),
    ("a settled hold is not given back", "  give_back(key, amount)\n  return charged", "  return charged"),
    (
        "a capture sent again is billed again",
        "~= EXPIRED then return settlement end",
        "== 99 then return settlement end",
    ),
    (
        "a late capture is not billed",
        "if read('>B', settlement, SETTLED_BILL) ~= EXPIRED then return settlement end",
        "if true then return settlement end",
    ),
    (
        "a late capture bills all of it again",
        "local delta = charged - charged_before",
        "local delta = charged",
    ),
    (
        "a late capture gives nothing back",
        "math.max(min(cost, billable), kept)",
        "math.max(min(cost, billable), charged_before)",
    ),
    (
        "a late capture bills more than is left",
        "local billable = charged_before + available(key)",
        "local billable = MAX",
    ),
    (
        "a late capture passes the bound of credit",
        "math.max(min(cost, billable), kept)",
        "min(cost, billable)",
    ),
    (
        "a late capture costs less than it is billed",
        "if cost < charged then total =",
        "if false then total =",
    ),
    ("a capture without a hold is free", "is_remembered(n) and min(cost, available(key)) or 0", "0"),
    (
        "a capture without a hold passes the limit",
        "is_remembered(n) and min(cost, available(key)) or 0",
        "is_remembered(n) and cost or 0",
    ),
    ("a forgotten generation may be billed twice", "now <= created_at + REMEMBERED and", "true and"),
    ("a generation of the future is billed", "and created_at <= now + CLOCK_LEAD", "and true"),
    (
        "too little is released",
        "    give_back(key, amount)\n    holds[n] = false",
        "    give_back(key, amount - 1)\n    holds[n] = false",
    ),
    ("a released hold stays", "    holds[n] = false\n    return 'released'", "    return 'released'"),
    ("a hold expires before its time", "if lease_until > account.tick then return 'not_due' end", ""),
    ("a hold outlives its lease's last tick", "lease_until > account.tick", "lease_until >= account.tick"),
    (
        "an expiry calls itself a capture",
        "return settle(key, n, payer, reported, EXPIRED, charged, charged)",
        "return settle(key, n, payer, '\\0' .. sub(reported, 2), CAPTURED, charged, charged)",
    ),
    ("another key's generation can be touched", "return id == key.id", "return true"),
    (
        "a deposit sent again is paid again",
        "if new_deposits[id] or call('HEXISTS', DEPOSITS, id) == 1 then",
        "if false then",
    ),
    ("a deposit within a batch is paid twice", "if new_deposits[id] or call('HEXISTS'", "if call('HEXISTS'"),
    (
        "a deposit of nothing is taken",
        "amount <= 0 or account.credit + amount > MAX",
        "account.credit + amount > MAX",
    ),
    ("the credit passes its bound", " or account.credit + amount > MAX", ""),
    ("a tick advances whatever was seen", "if seen == account.tick then", "if true then"),
    ("a tick does not advance", "account.tick, account.changed = account.tick + 1, true", ""),
    ("a charge is not added to the key", "key.used, key.low = key.used + amount, key.low + amount", ""),
    ("the time of the last bill is lost", "if amount > 0 then key.last_used_at = now end", ""),
    (
        "a charge of nothing counts as use",
        "if amount > 0 then key.last_used_at = now end",
        "key.last_used_at = now",
    ),
    ("large sums are rounded", "if key.low >= CARRY or key.low < 0 then", "if false then"),
    ("a settlement has no number of its own", "account.entries = account.entries + 1\n", ""),
    (
        "the balance after an entry is that before it",
        "'S', now, charged, delta, key.high, key.low)",
        "'S', now, charged, delta, key.high, key.low - delta)",
    ),
    (
        "a correction is not counted",
        "left_after(completion, completion_before), delta)",
        "left_after(completion, completion_before), 0)",
    ),
    (
        "a correction is another request",
        "count(payer, 0, left_after(prompt, prompt_before)",
        "count(payer, 1, left_after(prompt, prompt_before)",
    ),
    (
        "a correction counts all its tokens again",
        "left_after(prompt, prompt_before), left_after(cached",
        "prompt, left_after(cached",
    ),
    (
        "an expiry is not counted",
        "  count(payer, 1, prompt, cached, completion, charged)\n  return settle(key, n, payer, reported",
        "  return settle(key, n, payer, reported",
    ),
    ("tokens are counted without a bound", "return min(prompt, COUNTED_PER_REQUEST)", "return prompt"),
    ("earlier counts are forgotten", "if before[n] then requests, prompt", "if false then requests, prompt"),
    (
        "a batch counts its last settlement alone",
        "local sums = counts[payer]\n  if not sums then",
        "local sums = nil\n  if not sums then",
    ),
    ("a deposit leaves no trace", "call('HSET', DEPOSITS, id, amount)", ""),
    ("a resolved hold stays due", "if #ended > 0 then call('HDEL', HOLDS, unpack(ended)) end", ""),
    ("holds are not kept", "if #running > 0 then call('HSET', HOLDS, unpack(running)) end", ""),
    ("a settlement is forgotten", "call('HSET', KEYS[6], unpack(settled))", ""),
    (
        "a settlement of another hour is forgotten",
        "call('HSET', name, ARGV[BEFORE_IDS + n], settlements[n])",
        "",
    ),
    (
        "expiries are not looked for",
        "local some_expired = account.last_expiry > now - 1000 * EXPIRED_KEPT",
        "local some_expired = false",
    ),
];

#[test]
fn every_fault_planted_in_the_script_is_caught() {
    let server = Arc::new(RedisServer::start_with(&["--port", "0", "--appendonly", "no"]));
    let missed: Vec<_> =
        FAULTS.iter().filter(|fault| !is_caught(&server, fault)).map(|fault| fault.0).collect();
    assert_eq!(missed, [""; 0], "not caught, of {} faults", FAULTS.len());
}

#[test]
fn the_script_without_a_fault_passes() {
    let server = Arc::new(RedisServer::start_with(&["--port", "0", "--appendonly", "no"]));
    assert!(first_failure(&server, LEDGER).is_none());
}

fn is_caught(server: &Arc<RedisServer>, (what, right, wrong): &(&str, &str, &str)) -> bool {
    assert_eq!(LEDGER.matches(right).count(), 1, "{what}: the text to replace must occur exactly once");
    first_failure(server, &LEDGER.replace(right, wrong)).is_some()
}

/// The first history that ends differently from the ledger.
fn first_failure(server: &Arc<RedisServer>, ledger: &str) -> Option<String> {
    edges()
        .into_iter()
        .find_map(|edge| run(server, ledger, 1, &Just(edge)))
        .or_else(|| run(server, ledger, HISTORIES, &history()))
}

fn run(
    server: &Arc<RedisServer>,
    ledger: &str,
    cases: u32,
    histories: &impl Strategy<Value = Vec<Step>>,
) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let chance = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, chance).run(histories, |history| {
        let mut mutant = runtime.block_on(Mutant::new(server, ledger));
        runtime.block_on(live(&mut mutant, history));
        Ok(())
    });
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(reason, _) | TestError::Abort(reason)) => Some(reason.to_string()),
    }
}

/// Histories at the limits of numbers and times, which random histories seldom reach, each with a key without a
/// limit.
fn edges() -> Vec<Vec<Step>> {
    let (mine, key) = (account(0), key(0));
    let nanos = NanoUsd::from_nanos;
    let (most, all_but_one) = (NanoUsd::MAX, nanos(NanoUsd::MAX.nanos() - 1));
    let deposit = |n, amount| Command::Deposit { id: deposit(n), amount };
    let hold = |n, amount| Command::Hold {
        key,
        generation: generation(n),
        model: "Model Flash".into(),
        least: amount,
        enough: amount,
        most: amount,
        prompt_tokens: 1,
        lease_ticks: 1,
    };
    let progress =
        |tokens, cost| Progress { usage: Usage::of(tokens, tokens, tokens), cost, upstream_cost: None };
    let report = |n, tokens, cost| Command::Extend {
        key,
        generation: generation(n),
        most: NanoUsd::ZERO,
        progress: progress(tokens, cost),
        lease_ticks: 1,
    };
    let capture = |n, tokens, cost| Command::Capture {
        key,
        generation: generation(n),
        model: "Model Flash".into(),
        total: progress(tokens, cost),
        estimated: false,
    };
    let expire =
        |n| vec![Command::Tick { seen: Some(0) }, Command::Expire { key, generation: generation(n) }];
    let at_once = |commands| Step::Execute(mine, commands);
    let short_lived =
        KeyPatch { expires_at: Some(Some(START.plus(Duration::from_secs(9)))), ..KeyPatch::default() };
    vec![
        vec![
            at_once(vec![deposit(1, nanos(100))]),
            Step::Update(mine, key, short_lived),
            Step::Clock(Clock::Wait(Duration::from_secs(9))),
            at_once(vec![hold(1, nanos(5))]),
        ],
        // Reports that overtake each other, and a correction of the bill.
        vec![
            at_once(vec![deposit(1, nanos(100)), hold(1, nanos(50))]),
            at_once(vec![report(1, 20, nanos(20)), report(1, 10, nanos(10))]),
            at_once(expire(1)),
            at_once(vec![capture(1, 25, nanos(30))]),
        ],
        // A correction that credit at its bound can only partly take.
        vec![
            at_once(vec![deposit(1, most), hold(1, most), report(1, u64::MAX, most)]),
            at_once(expire(1)),
            at_once(vec![deposit(2, most), capture(1, 5, nanos(10))]),
        ],
        // Charges of a key that exceed the exact range of a double.
        vec![
            at_once(vec![deposit(1, most), hold(1, most), capture(1, 1, all_but_one)]),
            at_once(vec![deposit(2, all_but_one), hold(2, most), capture(2, 1, all_but_one)]),
            at_once(vec![capture(3, 1, nanos(1))]),
        ],
    ]
}

/// A store whose ledger has a fault.
struct Mutant {
    store: Arc<dyn Store>,
    _data_dir: TempDir,
}

impl Mutant {
    async fn new(server: &RedisServer, ledger: &str) -> Self {
        let data_dir = tempfile::tempdir().unwrap();
        let settings =
            crate::store::redis::Settings { volatile_allowed: true, ..settings(&server.url(), &data_dir) };
        let store = Redis::open(&settings, Arc::new(System)).await.unwrap();
        Self { store: Arc::new(store.with_ledger(ledger.to_owned())), _data_dir: data_dir }
    }
}

impl Subject for Mutant {
    async fn new() -> Self {
        unreachable!("a mutant needs its fault")
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    async fn doctor(&self, _: AccountId, _: Fault) {
        unreachable!("a mutant has a fault of its own")
    }
}
