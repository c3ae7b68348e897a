//! A large account: groups, keys and generations, and a few of everything else.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use futures_util::{StreamExt, stream};
use shared::{
    generation::{Course, FinishReason, ModelApi, Origin},
    ids::{AccountId, DepositId, GenerationId, GroupId, KeyId, RefusalId, RequestId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use domain::{
    digest::Digest,
    event::Actor,
    group::{Group, NewGroup},
    key::{ApiKey, NewKey},
    ledger::{Command, NewHold, PaidTo, Progress, histories::new_hold},
    refused::RefusedCall,
    webhook::{Webhook, WebhookPatch, WebhookUrl},
};
use key_service_management::{Management, governed::Governed as _, management_keys::ManagementKeySettings};
use key_service_store::store::{Hour, Ledger as _, RefusedLine, Store, suite::act};

/// Size of the account; `MEASURE_SMALLER=10` divides the size by ten.
pub(super) static KEYS: LazyLock<u64> = LazyLock::new(|| 100_000 / smaller());
static GENERATIONS: LazyLock<u64> = LazyLock::new(|| 1_000_000 / smaller());
static GROUPS: LazyLock<u64> = LazyLock::new(|| 1_000 / smaller());
/// Number of top-level groups. The other groups are inside them.
const PARENTS: u64 = 10;
/// Number of days over which the generations are spread.
const DAYS: u64 = 30;
/// Number of generations billed in one batch, as with a few dozen requests at once.
const TOGETHER: u64 = 8;
/// Number of keys that are created, or batches that are billed, concurrently, so that stores can group commits.
const AT_ONCE: usize = 32;
/// Number of management keys and of webhooks, far below their limits.
const FEW: u64 = 10;
/// Words for the labels of keys.
const TOWNS: [&str; 4] = ["Berlin", "Lagos", "Lima", "Osaka"];

fn smaller() -> u64 {
    std::env::var("MEASURE_SMALLER").map_or(1, |by| by.parse().expect("it is a number"))
}

/// Returns the time of a generation. The generations are spread evenly over the days before `end`.
fn time_of(n: u64, end: Timestamp) -> Timestamp {
    let all = DAYS * 24 * 3_600_000;
    end.minus(Duration::from_millis((*GENERATIONS - n) * (all / *GENERATIONS)))
}

/// Returns the id of a group. Groups are older than all keys.
pub(super) fn group_id(n: u64, end: Timestamp) -> GroupId {
    GroupId::new(end.minus(Duration::from_secs((*KEYS + *GROUPS - n) * 300)), [7; 10])
}

/// Returns the id of key `n`. Keys are five minutes apart.
pub(super) fn key_id(n: u64, end: Timestamp) -> KeyId {
    KeyId::new(end.minus(Duration::from_secs((*KEYS - n) * 300)), [7; 10])
}

/// Creates groups, keys, management keys and webhooks, and bills the generations.
pub(super) async fn fill(store: &Store, management: &Management, account: AccountId, end: Timestamp) {
    make_groups(store, account, end).await;
    make_keys(store, account, end).await;
    for n in 0..FEW {
        let settings = ManagementKeySettings::full(&format!("System {n}"));
        management.create_management_key(account, settings, Actor::System).await.unwrap();
        let url = WebhookUrl::parse(&format!("https://hooks.example.com/{n}")).unwrap();
        let settings = WebhookPatch { url: Some(url), ..WebhookPatch::default() };
        Webhook::create(management.by(account, Actor::System), settings, None).await.unwrap();
    }
    bill(store, account, end).await;
    refuse(store, account, end).await;
}

/// Adds 1,000 calls that were refused today, for several reasons. The store keeps no more than 1,000 refused calls.
async fn refuse(store: &Store, account: AccountId, end: Timestamp) {
    let reasons = ["key_limit_reached", "rate_limit_exceeded", "invalid_api_key"];
    let call = |n: usize| {
        let key = key_id(10 * (n as u64 % 200) + 3, end);
        let id = RefusalId::new(end.minus(Duration::from_secs(3 * (1_000 - n as u64))), [1; 10]);
        RefusedCall {
            id,
            key,
            reason: reasons[n % 3].into(),
            model: Some("Model Flash".into()),
            origin: None,
        }
    };
    let calls: Vec<_> = (0..1_000).map(call).collect();
    store.add_refused_calls(account, &calls).await.unwrap();
    let line = |call: &RefusedCall| {
        let reason = reasons.into_iter().find(|reason| *reason == call.reason).unwrap();
        RefusedLine { key: call.key, hour: Hour::of(end), reason, count: 1 }
    };
    store.add_refused(account, calls.iter().map(line).collect()).await.unwrap();
}

async fn make_groups(store: &Store, account: AccountId, end: Timestamp) {
    // Parents are created first. Creating a child group changes its parent, so groups are created one after another.
    for n in 0..*GROUPS {
        let id = group_id(n, end);
        let mut group = Group::new(id, id.created_at().to_whole_seconds());
        (group.name, group.external_id) = (format!("Group {n:04}"), Some(format!("group-{n}")));
        group.spend.parent = (n >= PARENTS).then(|| group_id(n % PARENTS, end));
        store.create_group(NewGroup { account, group, most: *GROUPS }, None, &act(end)).await.unwrap();
    }
}

async fn make_keys(store: &Store, account: AccountId, end: Timestamp) {
    let make = async |n: u64| {
        let id = key_id(n, end);
        let expires_at = n.is_multiple_of(10).then(|| end.minus(Duration::from_mins(1)));
        let hint = format!("fg_api_{:04}…{:04}", n % 9_973, n % 9_967);
        let mut key = ApiKey::new(id, hint, id.created_at().to_whole_seconds());
        key.label = format!("Customer {n:06} {}", TOWNS[usize::try_from(n % 4).unwrap()]);
        key.spend.expires_at = expires_at;
        // A quarter of the keys have no group.
        key.spend.group = (!n.is_multiple_of(4)).then(|| group_id(n % *GROUPS, end));
        let digest = Digest::of(&n.to_be_bytes());
        store.create_key(NewKey { account, key, digest, most: *KEYS }, None, &act(end)).await.unwrap();
        if n % 1_000 == 1 {
            store.revoke_key(account, id, &act(end)).await.unwrap();
        }
    };
    stream::iter(0..*KEYS).map(make).buffer_unordered(AT_ONCE).for_each(|()| async {}).await;
}

async fn bill(store: &Store, account: AccountId, end: Timestamp) {
    let deposit = Command::Deposit {
        id: DepositId::new(end, [1; 10]),
        amount: NanoUsd::from_usd(100_000),
        note: String::new(),
        payment_id: None,
        to: PaidTo::Account,
        actor: Actor::System,
    };
    store.execute(account, vec![deposit], end).await.unwrap();
    let together = async |first: u64| {
        let at = time_of(first, end);
        let commands = (first..first + TOGETHER).flat_map(|n| {
            let mut unique = [0; 10];
            unique[..8].copy_from_slice(&n.to_be_bytes());
            // Skips keys that are expired or revoked.
            let key = key_id(n.wrapping_mul(7_919) % (*KEYS / 10) * 10 + 2 + n % 8, end);
            let (generation, amount) = (GenerationId::new(at, unique), NanoUsd::from_nanos(1_000_000));
            let model = if n % 3 == 0 { "Model Max" } else { "Model Flash" }.to_owned();
            let usage = Usage::of(1_000 + n % 500, 0, 300);
            let cost = NanoUsd::from_nanos(i64::try_from(200_000 + n % 1_000).unwrap());
            let origin = Some(Arc::new(Origin {
                api: ModelApi::Chat,
                stream: true,
                user: Some(format!("user-{}", n % 5_000)),
                request: RequestId::from_slice(generation.as_bytes()),
            }));
            let new = new_hold(key, generation, amount);
            let hold = Command::Hold(NewHold { model: model.clone(), origin, ..new });
            // Only Model Flash has a known upstream cost.
            let upstream_cost = (n % 3 > 0).then(|| NanoUsd::from_nanos(cost.nanos() / 2));
            let course = Some(Arc::new(Course {
                upstream: Some(format!("upstream-{}", 1 + n % 4)),
                authorized_ms: Some(n % 7),
                first_token_ms: Some(100 + n % 900),
                latency_ms: Some(1_000 + n % 9_000),
                finish_reason: Some(FinishReason::Stop),
                least_cost_nanos: None,
            }));
            let (total, estimated) = (Progress { usage, cost, upstream_cost, course }, n % 50_000 == 7);
            [hold, Command::Capture { key, generation, model, total, chargeable: None, estimated }]
        });
        store.execute(account, commands.collect(), at).await.unwrap();
    };
    let batches = stream::iter((0..*GENERATIONS).step_by(usize::try_from(TOGETHER).unwrap()));
    batches.map(together).buffered(AT_ONCE).for_each(|()| async {}).await;
}
