//! Clients that send requests of every kind, one after the other, and clients that send garbage.

use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tests::{
    garbage::{Ending, Keys, Rng, Sending, judge, send},
    harness::{Dialect, Stack},
};
use tokio::time::{sleep, timeout};

use super::{
    population::{FEWEST_TOKENS, MOST_REQUESTS, Population, SLOTS, TENANTS},
    wire::{Ask, Connection, Got, UsedUp},
};

/// Percentage of requests that use a key whose revocation has been answered.
const REVOKED_PERCENT: usize = 11;
/// Such a request chooses among this many keys: those whose revocations were answered last.
const REVOKED_LAST: usize = 200;
/// How long a client pauses when a gateway does not accept its connection.
const NOBODY: Duration = Duration::from_millis(20);
/// How long a client pauses after a refusal. Without the pause, a client whose requests are all refused would keep the
/// machine busy.
const REFUSED: Duration = Duration::from_millis(2);
/// Maximum time until garbage is answered, while faults of every kind happen.
const GARBAGE_ANSWERED: Duration = Duration::from_secs(40);

/// A request, and what its client knows about it.
pub(super) struct Sent {
    pub(super) ask: Ask,
    pub(super) key: usize,
    pub(super) gateway: usize,
    pub(super) from: Instant,
    pub(super) to: Instant,
    /// Whether the key's revocation had been answered before the request was sent.
    pub(super) after_revocation: bool,
    pub(super) got: Got,
}

/// What all clients together sent and received.
#[derive(Default)]
pub(super) struct Clients {
    pub(super) sent: Mutex<Vec<Sent>>,
    next: AtomicU64,
}

/// Returns the addresses of the gateways, in the order of their numbers.
pub(crate) fn addresses(stack: &Stack) -> Vec<SocketAddr> {
    let address = |url: &str| url.trim_start_matches("http://").parse().expect("a gateway has an address");
    stack.gateways.iter().map(|gateway| address(gateway.public())).collect()
}

/// Sends requests to the gateways until the load ends.
pub(super) async fn client(
    number: usize,
    seed: u64,
    (gateways, population): (&[SocketAddr], &Population),
    (over, clients): (&AtomicBool, &Clients),
) {
    let mut gateway = number % gateways.len();
    let (mut connection, mut own): (Option<Connection>, Vec<Sent>) = (None, Vec::new());
    while !over.load(Ordering::Relaxed) {
        let Some(mut open) = connection.take() else {
            connection = Connection::open(gateways[gateway]).await;
            if connection.is_none() {
                gateway = (gateway + 1) % gateways.len();
                sleep(NOBODY).await;
            }
            continue;
        };
        let number = clients.next.fetch_add(1, Ordering::Relaxed);
        let mut rng = Rng::new(seed, number);
        let Some((ask, key, after_revocation)) = ask(number, &mut rng, population) else { continue };
        let secret = population.key(key).made.secret.clone();
        let from = Instant::now();
        let (got, usable) = open.exchange(&ask, &secret).await;
        learn(population, key, &got);
        let refused = got.status != 200;
        own.push(Sent { ask, key, gateway, from, to: Instant::now(), after_revocation, got });
        if usable {
            connection = Some(open);
        } else {
            gateway = (gateway + 1) % gateways.len();
        }
        if refused {
            sleep(REFUSED).await;
        }
    }
    clients.sent.lock().unwrap().append(&mut own);
}

/// Makes the request with this number. Returns it with the number of its key, and whether the key's revocation had been
/// answered. The seed decides everything except which key is in the slot at that moment.
fn ask(number: u64, rng: &mut Rng, population: &Population) -> Option<(Ask, usize, bool)> {
    let (slot, draw) = (rng.below(TENANTS * SLOTS), rng.below(1 << 20));
    let is_of_revoked = rng.percent(REVOKED_PERCENT);
    let dialect = *rng.pick(&Dialect::ALL);
    let streamed = rng.percent(40);
    let most_tokens = if rng.percent(5) { 150 } else { 24 };
    let completion = 1 + rng.below(most_tokens) as u64;
    let shorter = rng.percent(10);
    // The Responses API allows no limit below 16.
    let limit = if shorter { 16 + rng.below(8) as u64 } else { completion.max(16) + rng.below(8) as u64 };
    let (pace_ms, head_after_ms) =
        (rng.below(8) as u64, if rng.percent(10) { rng.below(300) as u64 } else { 0 });
    let leaves_after = (streamed && rng.percent(3)).then(|| 400 + rng.below(3_000));
    let key = if is_of_revoked {
        let revoked = population.revoked.read().unwrap();
        let last = revoked.len().min(REVOKED_LAST);
        *revoked.get(revoked.len() - last + draw % last.max(1))?
    } else {
        population.in_slot(slot).0
    };
    let of_key = population.key(key);
    let after_revocation = is_of_revoked || of_key.revoked.load(Ordering::SeqCst);
    let turn = if after_revocation { 0 } else { of_key.asked.fetch_add(1, Ordering::Relaxed) };
    if turn >= MOST_REQUESTS {
        return None;
    }
    let prompt = FEWEST_TOKENS + turn;
    let ask =
        Ask { number, dialect, streamed, prompt, completion, limit, pace_ms, head_after_ms, leaves_after };
    Some((ask, key, after_revocation))
}

/// If a limit refused the request, counts the refusal for the key, the group or the account that has the limit. Keys
/// and groups whose limits have refused often are replaced.
fn learn(population: &Population, key: usize, got: &Got) {
    let key = population.key(key);
    match got.used_up {
        None => {}
        Some(UsedUp::Key) => drop(key.refusals.fetch_add(1, Ordering::Relaxed)),
        Some(UsedUp::Group) => {
            key.refusals.fetch_add(1, Ordering::Relaxed);
            if let Some(group) = key.group {
                population.groups.read().unwrap()[group].refusals.fetch_add(1, Ordering::Relaxed);
            }
        }
        Some(UsedUp::Credit) => population.tenants[key.tenant].lacks_credit.store(true, Ordering::Relaxed),
    }
}

/// What the gateways answered to clients that sent garbage.
#[derive(Default)]
pub(super) struct Garbage {
    next: AtomicU64,
    pub(super) sent: AtomicU64,
    /// Answers that break a rule, each with the time at which its request was sent and with its gateway.
    pub(super) wrong: Mutex<Vec<(String, Instant, usize)>>,
}

/// Sends garbage to the gateways until the load ends.
pub(super) async fn garbage(
    seed: u64,
    (gateways, keys): (&[SocketAddr], &Keys),
    (over, garbage): (&AtomicBool, &Garbage),
) {
    while !over.load(Ordering::Relaxed) {
        let number = garbage.next.fetch_add(1, Ordering::Relaxed);
        let sending = Sending::roll(&mut Rng::new(seed, number), keys);
        let gateway = usize::try_from(number).expect("it is small") % gateways.len();
        let from = Instant::now();
        let wrong = match timeout(GARBAGE_ANSWERED, send(&gateways[gateway].to_string(), &sending)).await {
            Ok(Ok(answer)) => {
                garbage.sent.fetch_add(1, Ordering::Relaxed);
                let listens = sending.ending == Ending::Listen;
                match judge(&sending, &answer) {
                    Ok(()) if listens && answer.is_empty() => Some("is not answered".to_owned()),
                    Ok(()) => None,
                    Err(wrong) => Some(wrong),
                }
            }
            // The gateway does not run.
            Ok(Err(_)) => {
                sleep(NOBODY).await;
                None
            }
            Err(_) => Some("hangs".to_owned()),
        };
        if let Some(wrong) = wrong {
            garbage.wrong.lock().unwrap().push((format!("garbage {seed}/{number} {wrong}"), from, gateway));
        }
    }
}
