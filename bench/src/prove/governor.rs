//! Makes changes during the load: revokes keys that are in use, replaces them, and pays into accounts.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use http::{Request, header};
use shared::money::NanoUsd;
use tests::{
    garbage::Rng,
    harness::{Answer, Stack},
};
use tokio::time::sleep;

use super::population::{Key, Population, SLOTS, TENANTS, some_requests};

/// Pause between two checks of the same slot.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Number of concurrent revocations.
pub(super) const GOVERNORS: usize = 4;
/// Maximum number of deposits into an account with little credit.
const MOST_DEPOSITS: u32 = 12;

#[derive(Default)]
pub(super) struct Governed {
    pub(super) revocations: AtomicU64,
}

/// Replaces worn keys in every `GOVERNORS`-th slot until the load ends. Each key is revoked while requests still use
/// it.
pub(super) async fn govern(
    stack: &Stack,
    population: &Population,
    (first, mut rng): (usize, Rng),
    (over, governed): (&AtomicBool, &Governed),
) {
    while !over.load(Ordering::Relaxed) {
        for slot in (first..TENANTS * SLOTS).step_by(GOVERNORS) {
            let (number, key) = population.in_slot(slot);
            if !key.is_worn() || over.load(Ordering::Relaxed) {
                continue;
            }
            if !key.revoked.load(Ordering::SeqCst) {
                if !revoke(stack, &key).await {
                    continue;
                }
                key.revoked.store(true, Ordering::SeqCst);
                population.revoked.write().unwrap().push(number);
                governed.revocations.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(next) = population.key_for(stack, slot, &mut rng).await {
                let next = population.add(next);
                population.slots.write().unwrap()[slot] = next;
            }
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Revokes a key. Returns whether the revocation was answered. A key that was lost with a master counts as revoked.
async fn revoke(stack: &Stack, key: &Key) -> bool {
    let url = stack.url(&format!("/v1/management/keys/{}", key.made.id));
    let bearer = format!("Bearer {}", key.made.account.management_key);
    let request = Request::delete(url)
        .header(header::AUTHORIZATION, bearer)
        .body(http_body_util::Full::default())
        .unwrap();
    let Ok(response) = stack.http.open(request).await else { return false };
    Answer::read(response).await.is_ok_and(|answer| matches!(answer.status, 200 | 404))
}

/// Pays into accounts whose credit is used up, until the load ends. If the command for a payment fails, repeats the
/// payment with the same id.
pub(super) async fn pay(stack: &Stack, population: &Population, mut rng: Rng, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        sleep(LOOK_EVERY * 10).await;
        for tenant in population.tenants.iter().filter(|tenant| tenant.lacks_credit.load(Ordering::Relaxed)) {
            let payment = tenant.deposits.fetch_add(1, Ordering::Relaxed);
            if payment >= MOST_DEPOSITS {
                continue;
            }
            let amount = some_requests(&mut rng, 50, 1_500);
            while !paid(stack, &tenant.account.name, amount, payment).await {
                sleep(LOOK_EVERY * 10).await;
            }
            tenant.lacks_credit.store(false, Ordering::Relaxed);
            let mut deposited = tenant.deposited.lock().unwrap();
            *deposited = deposited.checked_add(amount).expect("it is little");
            stack.credited(&tenant.account, amount);
        }
    }
}

/// Returns whether the payment was certainly added.
async fn paid(stack: &Stack, account: &str, amount: NanoUsd, payment: u32) -> bool {
    let (account, settings) = (account.to_owned(), stack.operator().clone());
    let pay = move || {
        let (amount, id) = (amount.to_string(), format!("payment-{account}-{payment}"));
        let command = ["credits", "add", "--account", &account, "--amount", &amount, "--payment-id", &id];
        settings.try_cli(&command).0.success()
    };
    tokio::task::spawn_blocking(pay).await.unwrap()
}
