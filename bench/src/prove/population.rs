//! Accounts, groups and keys with small caps, and a record of the keys that requests use at the moment.

use std::sync::{
    Arc, Mutex, RwLock,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use serde_json::{Value, json};
use shared::money::NanoUsd;
use tests::{
    garbage::Rng,
    harness::{Account, ApiKey, Stack, cost_of, usd},
};

/// Number of accounts. Half of them have little credit.
pub(super) const TENANTS: usize = 8;
/// Number of keys that a tenant uses at the same time. Each has a different kind of limit.
pub(super) const SLOTS: usize = 6;
/// Number of tokens in the shortest prompt. Each request of a key has a prompt of a different length, by which its
/// entry in the journal is found.
pub(super) const FEWEST_TOKENS: u64 = 10;
pub(super) const MOST_REQUESTS: u64 = 180;
/// After this many refusals because its limit is used up, a key is replaced. Its limit has then been tested enough.
const REFUSALS: u32 = 12;
/// Credit of the accounts that do not run out of it.
const AMPLE: &str = "50";

/// An account, and the payments that it has received.
pub(super) struct Tenant {
    pub(super) account: Account,
    pub(super) deposited: Mutex<NanoUsd>,
    /// Number of deposits so far. It is part of the next payment's id.
    pub(super) deposits: AtomicU32,
    /// Whether a request was refused because the credit is used up.
    pub(super) lacks_credit: AtomicBool,
    /// For each of the two slots whose keys are in groups, the number of the group in which new keys are created.
    pub(super) groups: Mutex<[usize; 2]>,
    /// Number of the parent in which new groups are created, and how many groups were created in it.
    pub(super) parent: Mutex<(usize, u32)>,
}

/// A group with keys, or a group that is the parent of groups.
pub(super) struct Group {
    pub(super) id: String,
    pub(super) limit: NanoUsd,
    pub(super) parent: Option<usize>,
    pub(super) refusals: AtomicU32,
}

/// A key, and the limits that it was created with.
pub(super) struct Key {
    pub(super) made: ApiKey,
    pub(super) tenant: usize,
    /// The most that the key may ever spend, by its limit or by the limit of its window.
    pub(super) cap: Option<NanoUsd>,
    pub(super) group: Option<usize>,
    pub(super) requests_per_minute: Option<u64>,
    /// Number of requests after which the key is revoked.
    pub(super) revoked_after: u64,
    pub(super) asked: AtomicU64,
    pub(super) refusals: AtomicU32,
    /// Whether the revocation of the key has been answered.
    pub(super) revoked: AtomicBool,
}

impl Key {
    /// Returns whether the key should be replaced: it has sent enough requests, or its limit has refused enough of
    /// them.
    pub(super) fn is_worn(&self) -> bool {
        self.asked.load(Ordering::Relaxed) >= self.revoked_after
            || self.refusals.load(Ordering::Relaxed) >= REFUSALS
    }
}

/// The accounts, groups and keys that send requests.
pub(super) struct Population {
    pub(super) tenants: Vec<Tenant>,
    pub(super) groups: RwLock<Vec<Arc<Group>>>,
    /// All keys that were ever created.
    pub(super) keys: RwLock<Vec<Arc<Key>>>,
    /// For each slot, the number of the key that is in use.
    pub(super) slots: RwLock<Vec<usize>>,
    /// Numbers of the keys whose revocation has been answered.
    pub(super) revoked: RwLock<Vec<usize>>,
}

impl Population {
    /// Creates the accounts, and a key for each slot.
    pub(super) async fn make(stack: &Stack, rng: &mut Rng) -> Self {
        let mut tenants = Vec::new();
        for number in 0..TENANTS {
            let credit = if number < TENANTS / 2 { usd(AMPLE) } else { some_requests(rng, 200, 2_000) };
            tenants.push(Tenant {
                account: stack.open_account(&format!("tenant-{number}"), credit),
                deposited: Mutex::new(credit),
                deposits: AtomicU32::new(0),
                lacks_credit: AtomicBool::new(false),
                groups: Mutex::new([usize::MAX; 2]),
                parent: Mutex::new((usize::MAX, u32::MAX)),
            });
        }
        let population = Self {
            tenants,
            groups: RwLock::default(),
            keys: RwLock::default(),
            slots: RwLock::default(),
            revoked: RwLock::default(),
        };
        for slot in 0..TENANTS * SLOTS {
            let key = population.key_for(stack, slot, rng).await.expect("nothing has failed yet");
            let number = population.add(key);
            population.slots.write().unwrap().push(number);
        }
        population
    }

    /// Adds a key. Returns its number.
    pub(super) fn add(&self, key: Key) -> usize {
        let mut keys = self.keys.write().unwrap();
        keys.push(Arc::new(key));
        keys.len() - 1
    }

    pub(super) fn key(&self, number: usize) -> Arc<Key> {
        self.keys.read().unwrap()[number].clone()
    }

    /// Returns the key that is in use in a slot, and its number.
    pub(super) fn in_slot(&self, slot: usize) -> (usize, Arc<Key>) {
        let number = self.slots.read().unwrap()[slot];
        (number, self.key(number))
    }

    /// Creates a key with limits of the slot's kind; returns `None` if no answer confirmed it.
    pub(super) async fn key_for(&self, stack: &Stack, slot: usize, rng: &mut Rng) -> Option<Key> {
        let (tenant, kind) = (slot / SLOTS, slot % SLOTS);
        let mut body = json!({});
        let (mut cap, mut group, mut requests_per_minute) = (None, None, None);
        match kind {
            0 => {
                cap = Some(some_requests(rng, 3, 120));
                body["limit"] = number(cap?);
            }
            1 => {
                cap = Some(some_requests(rng, 3, 120));
                let per = *rng.pick(&["day", "week", "month"]);
                // A clock that is hours ahead would start the next day or week early, and the key would get another
                // budget.
                let per = if stack.clocks.is_empty() { per } else { "month" };
                body["limits"] = json!([{"amount": number(cap?), "per": per}]);
            }
            2 | 3 => {
                let number_of_group = self.group_for(stack, tenant, kind - 2, rng).await?;
                body["group_id"] = self.groups.read().unwrap()[number_of_group].id.clone().into();
                group = Some(number_of_group);
                if kind == 3 {
                    cap = Some(some_requests(rng, 20, 150));
                    body["limit"] = number(cap?);
                }
            }
            4 => {
                requests_per_minute = Some(30 + rng.below(200) as u64);
                body["requests_per_minute"] = requests_per_minute.into();
                body["max_in_flight"] = (4 + rng.below(8)).into();
                body["tokens_per_minute"] = 20_000.into();
            }
            _ => {}
        }
        let answer = manage(stack, &self.tenants[tenant].account, "/keys", &body).await?;
        Some(Key {
            made: ApiKey {
                id: answer["id"].as_str()?.to_owned(),
                account: self.tenants[tenant].account.clone(),
                secret: answer["key"].as_str()?.to_owned(),
            },
            tenant,
            cap,
            group,
            requests_per_minute,
            revoked_after: MOST_REQUESTS / 6 + rng.below(120) as u64,
            asked: AtomicU64::new(0),
            refusals: AtomicU32::new(0),
            revoked: AtomicBool::new(false),
        })
    }

    /// Returns the number of the group in which the tenant's keys of this kind are created. If the limit of the
    /// present group has refused many requests, a new group is created.
    async fn group_for(&self, stack: &Stack, tenant: usize, place: usize, rng: &mut Rng) -> Option<usize> {
        let present = self.tenants[tenant].groups.lock().unwrap()[place];
        let in_use = |group: &Arc<Group>| group.refusals.load(Ordering::Relaxed) < REFUSALS;
        if self.groups.read().unwrap().get(present).is_some_and(in_use) {
            return Some(present);
        }
        let account = &self.tenants[tenant].account;
        let (mut parent, mut made) = *self.tenants[tenant].parent.lock().unwrap();
        if made >= 3 {
            let limit = some_requests(rng, 200, 500);
            let body = json!({"name": format!("parent-{}", rng.below(1 << 30)), "limit": number(limit)});
            parent = self.add_group(&manage(stack, account, "/groups", &body).await?, limit, None)?;
            made = 0;
        }
        *self.tenants[tenant].parent.lock().unwrap() = (parent, made + 1);
        let limit = some_requests(rng, 50, 400);
        let parent_id = self.groups.read().unwrap()[parent].id.clone();
        let name = format!("group-{}", rng.below(1 << 30));
        let body = json!({"name": name, "limit": number(limit), "parent_id": parent_id});
        let number = self.add_group(&manage(stack, account, "/groups", &body).await?, limit, Some(parent))?;
        self.tenants[tenant].groups.lock().unwrap()[place] = number;
        Some(number)
    }

    fn add_group(&self, answer: &Value, limit: NanoUsd, parent: Option<usize>) -> Option<usize> {
        let id = answer["id"].as_str()?.to_owned();
        let mut groups = self.groups.write().unwrap();
        groups.push(Arc::new(Group { id, limit, parent, refusals: AtomicU32::new(0) }));
        Some(groups.len() - 1)
    }
}

/// Creates an object through the management API. Returns the answer; `None` if no answer confirmed that the object was
/// created.
async fn manage(stack: &Stack, account: &Account, path: &str, body: &Value) -> Option<Value> {
    let request = http::Request::post(stack.url(&format!("/v1/management{path}")))
        .header(http::header::AUTHORIZATION, format!("Bearer {}", account.management_key))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes().into())
        .unwrap();
    let answer = tests::harness::Answer::read(stack.http.open(request).await.ok()?).await.ok()?;
    (answer.status == 201).then(|| answer.json())
}

/// Returns the cost of several requests. Their number is drawn between these two.
pub(super) fn some_requests(rng: &mut Rng, least: usize, most: usize) -> NanoUsd {
    let count = i64::try_from(least + rng.below(most - least)).expect("it is small");
    NanoUsd::from_nanos(cost_of(100, 20).nanos() * count)
}

/// Returns an amount as a number for JSON.
fn number(amount: NanoUsd) -> Value {
    serde_json::from_str(&amount.to_string()).unwrap()
}
