//! The clients. Each sends one stream after the other for its tenant, and stops when the tenant has been refused for
//! longer than a stream takes.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use tests::{garbage::Rng, harness::Dialect};
use tokio::time::sleep;

use super::setting::{COMPLETION, DEADLINE, LIMIT, PACE_MS, PROMPT, STREAMS, System};
use crate::prove::wire::{Ask, Connection};

/// Number of consecutive refusals after which a client ends, and the pause after each. Together, the pauses exceed the
/// duration of the longest stream, since a stream's hold may be the reason for the refusal.
const REFUSALS: u32 = 24;
const REFUSED: Duration = Duration::from_millis(250);
/// Pause after an answer that is neither a refusal nor a success.
const FAILED: Duration = Duration::from_millis(100);
/// Size of the range of numbers reserved for one tenant's requests.
const OF_A_TENANT: u64 = 1_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    pub(super) whole: u64,
    pub(super) cut: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
}

/// Returns the tenant whose request has this tag.
pub(super) fn tenant_of(tag: &str) -> Option<usize> {
    Ask::number_in(tag).and_then(|number| usize::try_from(number / OF_A_TENANT).ok())
}

/// Runs all clients until each has ended.
pub(super) async fn drive(system: &System, seed: u64) -> Answers {
    let (answers, until) = (Mutex::new(Answers::default()), Instant::now() + DEADLINE);
    join_all((0..STREAMS).map(|number| client(system, number, (seed, until), &answers))).await;
    answers.into_inner().unwrap()
}

async fn client(system: &System, number: usize, (seed, until): (u64, Instant), answers: &Mutex<Answers>) {
    let tenant = number % system.keys.len();
    let of_tenant = number / system.keys.len();
    let (mut replica, mut refusals, mut turn) = (number % system.addresses.len(), 0, 0_u64);
    while refusals < REFUSALS && Instant::now() < until {
        // Each client of a tenant has its own numbers.
        let place = turn * STREAMS as u64 + of_tenant as u64;
        turn += 1;
        let mut rng = Rng::new(seed, tenant as u64 * OF_A_TENANT + place);
        let (least, most) = COMPLETION;
        let completion = least + rng.below(usize::try_from(most - least).expect("it is small")) as u64;
        let ask = Ask {
            number: tenant as u64 * OF_A_TENANT + place,
            dialect: Dialect::Chat,
            streamed: true,
            prompt: PROMPT,
            completion,
            limit: LIMIT,
            pace_ms: PACE_MS,
            head_after_ms: 0,
            leaves_after: None,
        };
        // Acts like a load balancer that sends each request to the next replica.
        replica = (replica + 1) % system.addresses.len();
        let got = match Connection::open(system.addresses[replica]).await {
            Some(mut connection) => connection.exchange(&ask, &system.keys[tenant]).await.0,
            None => crate::prove::wire::Got::default(),
        };
        let pause = {
            let mut answers = answers.lock().unwrap();
            match got.status {
                200 if got.complete => {
                    answers.whole += 1;
                    refusals = 0;
                    Duration::ZERO
                }
                200 => {
                    answers.cut += 1;
                    refusals = 0;
                    Duration::ZERO
                }
                400..500 => {
                    answers.refused += 1;
                    refusals += 1;
                    REFUSED
                }
                _ => {
                    answers.failed += 1;
                    FAILED
                }
            }
        };
        sleep(pause).await;
    }
}
