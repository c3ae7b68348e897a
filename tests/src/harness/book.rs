//! The harness's own books: the possible costs of every request, for comparison with the bills.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;
use shared::money::NanoUsd;

use super::{catalogue::cost, clients::client::nanos, servers::server::Settings};
use crate::upstream::{End, Fault, Generation, Upstream};

/// An account and a management key for it.
#[derive(Clone, Debug)]
pub struct Account {
    pub name: String,
    /// Plaintext of a management key.
    pub management_key: String,
}

/// State of an account as the command line reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    pub credit: NanoUsd,
    /// Amount covered by open holds.
    pub held: NanoUsd,
}

/// Accounts with their deposits, and all requests with their reported costs.
#[derive(Default)]
pub(super) struct Book {
    accounts: Mutex<Vec<(Account, NanoUsd)>>,
    entries: Mutex<Vec<Arc<Mutex<Line>>>>,
    /// For imported keys, the amounts that they had spent before the import.
    elsewhere: Mutex<HashMap<String, NanoUsd>>,
    /// Whether clients other than the harness spend too; their requests are not in the book.
    others: AtomicBool,
}

/// A request in the book.
pub(super) struct Entry(Arc<Mutex<Line>>);

#[derive(Clone)]
struct Line {
    url: String,
    key: String,
    tag: String,
    model: String,
    told: Option<NanoUsd>,
    /// Minimum and maximum cost that the test expects.
    range: Option<(NanoUsd, NanoUsd)>,
    /// Whether the process was killed during the request, so only its last report was billed.
    interrupted: bool,
}

impl Entry {
    /// Enters the cost that a response's usage reports. It reports none if the charge was not confirmed in time.
    pub(super) fn tell_of(&self, usage: &Value) {
        if let Some(cost) = usage.get("cost") {
            self.0.lock().unwrap().told = Some(nanos(cost));
        }
    }
}

impl Book {
    /// Enters an account with its first deposit, and creates a management key for it.
    pub(super) fn open(&self, settings: &Settings, name: &str, paid: NanoUsd) -> Account {
        let printed = settings.cli(&["management-keys", "create", "--account", name, "--name", "tests"]);
        let account = Account { name: name.to_owned(), management_key: printed.trim().to_owned() };
        self.accounts.lock().unwrap().push((account.clone(), paid));
        account
    }

    pub(super) fn accounts(&self) -> Vec<Account> {
        self.accounts.lock().unwrap().iter().map(|(account, _)| account.clone()).collect()
    }

    /// Enters a payment.
    pub(super) fn deposited(&self, name: &str, amount: NanoUsd) {
        let mut accounts = self.accounts.lock().unwrap();
        let (_, paid) = accounts.iter_mut().find(|(account, _)| account.name == name).unwrap();
        *paid = paid.checked_add(amount).unwrap();
    }

    /// Enters a request. If the upstream's count does not determine the cost, `range` is its range.
    pub(super) fn enter(
        &self,
        url: &str,
        key: &str,
        tag: &str,
        model: &str,
        range: Option<(NanoUsd, NanoUsd)>,
    ) -> Entry {
        let line = Line {
            url: url.into(),
            key: key.into(),
            tag: tag.into(),
            model: model.into(),
            told: None,
            range,
            interrupted: false,
        };
        let line = Arc::new(Mutex::new(line));
        self.entries.lock().unwrap().push(line.clone());
        Entry(line)
    }

    /// Returns the tags of all requests with this key.
    pub(super) fn tags_of(&self, key: &str) -> Vec<String> {
        let entries = self.entries.lock().unwrap();
        let lines = entries.iter().map(|line| line.lock().unwrap());
        lines.filter(|line| line.key == key).map(|line| line.tag.clone()).collect()
    }

    /// Notes that the process at this address is about to be killed.
    pub(super) fn crashed(&self, address: &str) {
        for line in &*self.entries.lock().unwrap() {
            let mut line = line.lock().unwrap();
            line.interrupted |= line.told.is_none() && line.url.starts_with(address);
        }
    }

    /// Records what an imported key had spent before its import.
    pub(super) fn moved_in(&self, key: &str, used: NanoUsd) {
        self.elsewhere.lock().unwrap().insert(key.to_owned(), used);
    }

    /// Returns what a key has spent since it was imported.
    pub(super) fn used_here(&self, key: &str, used: NanoUsd) -> NanoUsd {
        let elsewhere = self.elsewhere.lock().unwrap().get(key).copied().unwrap_or_default();
        used.checked_sub(elsewhere).unwrap()
    }

    /// Notes that other clients spend too, so that the charges of single keys are unknown here.
    pub(super) fn others_spend(&self) {
        self.others.store(true, Ordering::Relaxed);
    }

    /// Asserts that keys and accounts were billed the cost of their requests. `listed` contains the account, id and
    /// charges of every key; without it, only the accounts are checked.
    pub(super) fn assert_billed(
        &self,
        settings: &Settings,
        upstream: &Upstream,
        listed: Option<&[(String, String, NanoUsd)]>,
    ) {
        let balances = balances(settings);
        let Some(listed) = listed else {
            let expected = self.expected(&upstream.generations());
            let spent: i64 = self
                .accounts
                .lock()
                .unwrap()
                .iter()
                .map(|(a, paid)| paid.nanos() - balances[&a.name].credit.nanos())
                .sum();
            let (least, most) =
                expected.values().fold((0, 0), |sum, range| (sum.0 + range.0, sum.1 + range.1));
            assert!(
                (least..=most).contains(&spent),
                "{spent} n$ were billed, {least}..={most} n$ were spent"
            );
            return;
        };
        for (account, paid) in &*self.accounts.lock().unwrap() {
            let of_account = listed.iter().filter(|(name, ..)| *name == account.name);
            let used: i64 = of_account.map(|(.., used)| used.nanos()).sum();
            let spent = paid.nanos() - balances[&account.name].credit.nanos();
            assert_eq!(
                used, spent,
                "the keys of {} used {used} n$, its credit paid {spent} n$",
                account.name
            );
        }
        if self.others.load(Ordering::Relaxed) {
            return;
        }
        let expected = self.expected(&upstream.generations());
        for (_, id, used) in listed {
            let (least, most) = expected.get(id).copied().unwrap_or_default();
            assert!(
                (least..=most).contains(&used.nanos()),
                "{id} was billed {} n$, its requests cost {least}..={most} n$",
                used.nanos()
            );
        }
    }

    /// Returns the minimum and maximum amount that may have been billed to each key, in nano-USD.
    fn expected(&self, generations: &[Generation]) -> HashMap<String, (i64, i64)> {
        // If there were several attempts, only the last one can have been answered.
        let by_tag: HashMap<&str, &Generation> = generations.iter().map(|g| (g.tag.as_str(), g)).collect();
        let mut keys: HashMap<String, (i64, i64)> = HashMap::new();
        for line in &*self.entries.lock().unwrap() {
            let line = line.lock().unwrap().clone();
            let (least, most) = line.range(by_tag.get(line.tag.as_str()).copied());
            let sum = keys.entry(line.key).or_default();
            *sum = (sum.0 + least, sum.1 + most);
        }
        keys
    }
}

/// Returns the balance of every account by name, as the command line reports it.
pub(super) fn balances(settings: &Settings) -> BTreeMap<String, Balance> {
    let printed = settings.cli(&["accounts", "list", "--json"]);
    let listed: Value = serde_json::from_str(&printed).unwrap_or_else(|e| panic!("no JSON, {e}: {printed}"));
    let listed = listed.as_array().unwrap_or_else(|| panic!("no list: {printed}"));
    let one = |account: &Value| {
        let name = account["name"].as_str().unwrap().to_owned();
        (name, Balance { credit: nanos(&account["credit"]), held: nanos(&account["held"]) })
    };
    listed.iter().map(one).collect()
}

impl Line {
    fn range(&self, served: Option<&Generation>) -> (i64, i64) {
        if let Some(told) = self.told {
            return (told.nanos(), told.nanos());
        }
        if let Some((least, most)) = self.range {
            return (least.nanos(), most.nanos());
        }
        let Some(served) = served else { return (0, 0) };
        let (least, most) = billed(&self.model, served);
        (if self.interrupted { 0 } else { least.nanos() }, most.nanos())
    }
}

/// Returns the minimum and maximum correct charge for a generation whose cost did not reach the client.
pub fn billed(model: &str, served: &Generation) -> (NanoUsd, NanoUsd) {
    let truth = cost(model, served.served);
    let nothing = (NanoUsd::ZERO, NanoUsd::ZERO);
    let finished = served.ended_by(End::Finished);
    // A whole answer is useful only if it is complete and valid. A finish reason `abort` is not valid.
    let in_order = served.script.fault == Fault::None && served.script.finish_reason.is_none();
    match served.streamed {
        _ if served.served.completion == 0 => nothing,
        true if finished => (truth, truth),
        true => (NanoUsd::ZERO, truth),
        false if finished && in_order => (truth, truth),
        false => nothing,
    }
}

/// An API key and its plaintext.
#[derive(Clone, Debug)]
pub struct ApiKey {
    /// `ak_…`
    pub id: String,
    pub account: Account,
    pub secret: String,
}
