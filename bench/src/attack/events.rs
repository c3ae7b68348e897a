//! An account that makes changes without end, each of which records an event, next to another customer. Redis is small,
//! but the part of its memory that is reserved for chats must stay free.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use tests::harness::{Account, ApiKey, Http, Stack, usd};

use super::{
    filling::{DELAY, redis_info, services, slowest_chat},
    row::Row,
};

/// Memory of Redis beyond what an empty installation uses. A fifth of it is reserved for chats.
const MEMORY: u64 = 12 << 20;
/// The highest limit of a key; each change lowers it by a dollar.
const LIMIT: u64 = 1_000_000;
/// Number of connections of the account that makes changes.
const CONNECTIONS: usize = 8;
/// Size of an event with two lists of the longest names, in a listing.
const EVENT_BYTES: usize = 4_096;
/// Memory that further changes in a nearly full store may use, in addition to those in flight when it became full.
const GROWTH: u64 = 2 << 20;

/// Outcomes of the changes, and of another customer's chats meanwhile.
#[derive(Debug, Default)]
pub struct Changed {
    /// Number of changes that were made.
    pub done: u64,
    /// Number of changes refused because the store is nearly full.
    pub full: u64,
    /// Number of changes that the store did not confirm in time, such as on a busy disk.
    pub unavailable: u64,
    /// Number of other answers.
    pub other: u64,
    /// Status and body of the first other answer.
    pub other_said: Option<String>,
    /// The longest wait of another customer for a chat; `Duration::MAX` if a chat was refused.
    pub slowest_chat: Duration,
}

/// Changes a key over several connections for this long, next to another customer's chats. The changes' bodies are
/// numbered.
pub async fn change_without_end(
    stack: &Stack,
    (account, key, other): (&Account, &ApiKey, &ApiKey),
    lasts: Duration,
    body: impl Fn(u64) -> Value,
) -> Changed {
    let until = Instant::now() + lasts;
    let (next, done, full) = <(AtomicU64, AtomicU64, AtomicU64)>::default();
    let (unavailable, failed) = <(AtomicU64, AtomicU64)>::default();
    let said = OnceLock::new();
    let url = stack.url(&format!("/v1/management/keys/{}", key.id));
    let governors = (0..CONNECTIONS).map(|_| async {
        let http = Http::new();
        while Instant::now() < until {
            let body = body(next.fetch_add(1, Relaxed));
            let answer = http.send_as(&account.management_key, Method::PATCH, &url, Some(body)).await;
            let count = match answer.status {
                200 => &done,
                503 if answer.code() == "store_full" => &full,
                503 if answer.code() == "service_unavailable" => &unavailable,
                _ => {
                    said.get_or_init(|| format!("{} {}", answer.status, answer.text()));
                    &failed
                }
            };
            count.fetch_add(1, Relaxed);
        }
    });
    let chats = async {
        let mut slowest = Duration::ZERO;
        while Instant::now() < until {
            slowest = slowest.max(slowest_chat(stack, other).await);
        }
        slowest
    };
    let (_, slowest_chat) = tokio::join!(join_all(governors), chats);
    let other_said = said.into_inner();
    Changed {
        done: done.into_inner(),
        full: full.into_inner(),
        unavailable: unavailable.into_inner(),
        other: failed.into_inner(),
        other_said,
        slowest_chat,
    }
}

/// Returns the first other answer, for the table.
fn said(changed: &Changed) -> String {
    changed.other_said.as_ref().map(|said| format!(" ({said})")).unwrap_or_default()
}

/// Returns a list of the longest names, different for each number.
pub fn long_names(number: u64) -> Value {
    let names = (0..64).map(|n| format!("{n:02}{}{}", number % 10, "🔑".repeat(197)));
    json!({"models": names.collect::<Vec<_>>()})
}

/// Limits the memory of a stack's Redis to this much more than an empty installation needs.
pub fn bound_memory(stack: &Stack, memory: u64) {
    let most = redis_info(stack, "memory", "used_memory") + memory;
    stack.redis().ask(0, &format!("CONFIG SET maxmemory {most}"));
}

pub(super) async fn rows() -> Vec<Row> {
    let stack = services().await;
    let greedy = stack.open_account("greedy", usd("1"));
    let key = stack.key_of(&greedy, json!({"limit": LIMIT})).await;
    let other = stack.key().await;
    bound_memory(&stack, MEMORY);
    let calm = slowest_chat(&stack, &other).await;
    let parties = (&greedy, &key, &other);
    let long = change_without_end(&stack, parties, Duration::from_mins(1), long_names).await;
    let list = stack.url("/v1/management/events?limit=1&type=key.updated");
    let event = Http::new().send_as(&greedy.management_key, Method::GET, &list, None).await.text().len();
    let before = redis_info(&stack, "memory", "used_memory");
    let lower = |number: u64| json!({"limit": LIMIT - 1 - number});
    let lowered = change_without_end(&stack, parties, Duration::from_secs(20), lower).await;
    let grown = redis_info(&stack, "memory", "used_memory").saturating_sub(before);
    let left = |changed: &Changed| {
        let delay = changed.slowest_chat.saturating_sub(calm);
        (
            delay <= DELAY,
            if changed.slowest_chat == Duration::MAX {
                "refused".into()
            } else {
                format!("{delay:.0?} longer")
            },
        )
    };
    let ((goes_on, waits), (still_goes_on, still_waits)) = (left(&long), left(&lowered));
    vec![
        Row {
            name: format!("endless changes with 64 long names, {} MiB of Redis left", MEMORY >> 20),
            expected: format!("store_full, another's chat waits {DELAY:?} longer"),
            seen: format!(
                "{} done, {} full, {} others{}; chats {waits}",
                long.done,
                long.full,
                long.other + long.unavailable,
                said(&long)
            ),
            held: goes_on && long.full > 0 && long.other + long.unavailable == 0,
        },
        Row {
            name: "an event of such a change".into(),
            expected: format!("{EVENT_BYTES} bytes"),
            seen: format!("{event} bytes"),
            held: event <= EVENT_BYTES,
        },
        Row {
            name: "then bounds lowered endlessly, which a full store accepts".into(),
            expected: format!("{} MiB more, chats go on", GROWTH >> 20),
            seen: format!(
                "{} done, {} others{}, {} kB more; chats {still_waits}",
                lowered.done,
                lowered.full + lowered.other + lowered.unavailable,
                said(&lowered),
                grown >> 10
            ),
            held: still_goes_on
                && grown <= GROWTH
                && lowered.other + lowered.unavailable == 0
                && lowered.done > 0,
        },
    ]
}
