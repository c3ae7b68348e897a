//! Shows that the random histories have teeth: each of these faults, planted in the script, is caught.

use std::sync::Arc;

use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use shared::{clock::System, ids::AccountId};
use tempfile::TempDir;

use super::{Fault, Subject, in_redis::settings, servers::Server, spending::live};
use crate::{
    domain::ledger::script::history,
    store::{
        Store,
        redis::{LEDGER, Redis},
    },
};

/// Histories within which a fault must show, always the same ones: most show in the first ten.
const HISTORIES: u32 = 400;

/// What is done wrong, the words that do it right, and those that do not.
const FAULTS: [(&str, &str, &str); 43] = [
    ("a key at its limit may spend", "key.used >= key.limit", "key.used > key.limit"),
    ("the last of a limit cannot be spent", "left_of_limit < least", "left_of_limit <= least"),
    ("the last of the credit cannot be spent", "account.credit < least", "account.credit <= least"),
    ("without credit one may spend", "account.credit <= 0", "account.credit < 0"),
    ("a key's expiry is not checked", "key.expires_at and key.expires_at <= now", "false"),
    ("a key may spend at its very expiry", "key.expires_at <= now", "key.expires_at < now"),
    ("a revoked key may spend", "if key.revoked_at then return 'revoked' end", ""),
    (
        "holds of a key may pass its limit",
        "left_after(left_after(key.limit, key.used), key.held)",
        "left_after(key.limit, key.used)",
    ),
    ("holds of an account may pass its credit", "left_after(account.credit, account.held)", "account.credit"),
    ("less than enough is held", "math.min(math.max(enough, least), left)", "least"),
    (
        "a hold takes one too much",
        "math.min(math.max(most, least), free)",
        "math.min(math.max(most, least), free + 1)",
    ),
    (
        "a hold sent again holds again",
        "if record.state == 'open' then return 'held '",
        "if false then return 'held '",
    ),
    ("a hold is not set aside", "account.held, key.held = account.held + amount, key.held + amount", ""),
    (
        "an extension lowers a hold",
        "math.min(left_after(most, open.amount), available(key))",
        "math.min(most - open.amount, available(key))",
    ),
    ("a revoked key's holds grow", "if not key.revoked_at then more", "if true then more"),
    ("a report that was overtaken counts", "if cost < open.cost then", "if false then"),
    ("a lease gets shorter", "math.max(open.lease_until, lease_until)", "lease_until"),
    (
        "what a hold does not cover is not billed",
        "math.min(cost, open.amount) + beyond",
        "math.min(cost, open.amount)",
    ),
    (
        "more is billed than is left",
        "math.min(left_after(cost, open.amount), available(key))",
        "left_after(cost, open.amount)",
    ),
    ("a settled hold is not given back", "  give_back(key, open.amount)\n", ""),
    ("a capture sent again is billed again", "elseif record.state == 'expired' then", "else"),
    (
        "a late capture bills all of it again",
        "left_after(cost, expired.charged), available(key)",
        "cost, available(key)",
    ),
    ("a late capture forgets what expiry billed", "math.max(cost, expired.charged)", "cost"),
    ("too little is released", "give_back(key, record.amount)", "give_back(key, record.amount - 1)"),
    ("a hold expires before its time", "if record.lease_until > now then return 'not_due' end", ""),
    ("a hold outlives its lease's last instant", "record.lease_until > now", "record.lease_until >= now"),
    (
        "an expiry calls itself exact",
        "record.usage, 'estimated', 'expired'",
        "record.usage, 'exact', 'expired'",
    ),
    ("another key's generation can be touched", "record.key and record.key ~= key.id", "false"),
    ("a deposit sent again is paid again", "if records[id].state ~= 'none' then", "if false then"),
    ("the credit passes its bound", " or account.credit + amount > MAX", ""),
    ("a resolved hold stays due", "write('ZREM', LEASES, ended)", ""),
    ("a batch is billed as the key's whole use", "written(key.billed)", "written(key.used)"),
    ("large numbers are rounded", "string.format('%.0f', n)", "tostring(n)"),
    ("a settlement has no number of its own", "account.entries = account.entries + 1", ""),
    ("a late capture is not counted at all", "0, expired.usage, missing)", "0, usage, 0)"),
    ("a late capture is another request", "0, expired.usage, missing)", "1, expired.usage, missing)"),
    ("a late capture counts all its tokens again", "0, expired.usage, missing)", "0, nil, missing)"),
    (
        "tokens are counted without a bound",
        "math.min(tonumber(completion), COUNTED_PER_REQUEST)",
        "tonumber(completion)",
    ),
    (
        "what was counted before is forgotten",
        "string.gmatch(before or '', '%d+')",
        "string.gmatch('', '%d+')",
    ),
    ("a batch counts its last settlement alone", "counts[counter] or { 0, 0, 0, 0, 0 }", "{ 0, 0, 0, 0, 0 }"),
    ("models are not told apart", "key.id .. ' ' .. settled.model", "key.id .. ' Model Max'"),
    ("a deposit leaves no trace", "write('HSET', DEPOSITS, deposits)", ""),
    ("the journal misses what was settled", "write('ZADD', JOURNAL, entries)", ""),
];

#[test]
fn every_fault_planted_in_the_script_is_caught() {
    let server = Arc::new(Server::start_with(&["--port", "0", "--appendonly", "no"]));
    let missed: Vec<_> =
        FAULTS.iter().filter(|fault| !is_caught(&server, fault)).map(|fault| fault.0).collect();
    assert_eq!(missed, [""; 0], "not caught, of {} faults", FAULTS.len());
}

#[test]
fn the_script_without_a_fault_passes() {
    let server = Arc::new(Server::start_with(&["--port", "0", "--appendonly", "no"]));
    assert!(first_failure(&server, LEDGER).is_none());
}

fn is_caught(server: &Arc<Server>, (what, right, wrong): &(&str, &str, &str)) -> bool {
    assert_eq!(LEDGER.matches(right).count(), 1, "{what}: the words to be changed must stand there once");
    first_failure(server, &LEDGER.replace(right, wrong)).is_some()
}

/// The first of the histories that does not end as the ledger says.
fn first_failure(server: &Arc<Server>, ledger: &str) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config =
        Config { cases: HISTORIES, failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    let chance = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let outcome = TestRunner::new_with_rng(config, chance).run(&history(), |history| {
        let mut mutant = runtime.block_on(Mutant::new(server, ledger));
        runtime.block_on(live(&mut mutant, history));
        Ok(())
    });
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(reason, _) | TestError::Abort(reason)) => Some(reason.to_string()),
    }
}

/// A store whose ledger has a fault.
struct Mutant {
    store: Arc<dyn Store>,
    _data_dir: TempDir,
}

impl Mutant {
    async fn new(server: &Server, ledger: &str) -> Self {
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
