//! Slots for attempts. A webhook here is any destination: a webhook, or an alert.
//!
//! The number of slots is small, and accounts share them so that one account's slow receivers do not block other
//! accounts.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use key_service_store::store::QueueId;
use parking_lot::Mutex;
use shared::ids::AccountId;

/// Maximum number of concurrent attempts in this process. Each has its own connection.
const MAX_ATTEMPTS: usize = 64;
/// Maximum number of concurrent attempts for one webhook in this process, so that a slow receiver leaves slots for the
/// account's other webhooks.
const MAX_ATTEMPTS_OF_A_WEBHOOK: usize = 4;
/// Number of slots that must stay free for each slot that an account takes. So a single account gets at most a quarter
/// of all slots, and even a dozen greedy accounts leave some slots for others. When few slots are free, only accounts
/// without a slot get one.
const FREE_FOR_EACH: usize = 3;

/// The slots, and the turns of accounts and webhooks.
#[derive(Clone, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

#[derive(Default)]
struct Taken {
    places: usize,
    /// Number of slots taken so far, which orders the turns.
    turn: u64,
    accounts: HashMap<AccountId, AccountSlots>,
}

#[derive(Default)]
struct AccountSlots {
    places: usize,
    last_turn: u64,
    webhooks: HashMap<QueueId, WebhookSlots>,
}

#[derive(Default)]
struct WebhookSlots {
    places: usize,
    last_turn: u64,
}

/// A slot for an attempt, released when dropped.
pub(super) struct AttemptPlace {
    places: Places,
    account: AccountId,
    webhook: QueueId,
}

impl Places {
    /// Sorts accounts by their turn: those with the fewest running attempts first, then those that have waited longest.
    /// Forgets all other accounts.
    pub(super) fn accounts_in_turn(&self, mut accounts: Vec<AccountId>) -> Vec<AccountId> {
        let mut taken = self.0.lock();
        let present: HashSet<&AccountId> = accounts.iter().collect();
        taken.accounts.retain(|account, of| of.places > 0 || present.contains(account));
        let of = |account: &AccountId| taken.accounts.get(account);
        accounts.sort_by_cached_key(|account| of(account).map_or((0, 0), |of| (of.places, of.last_turn)));
        accounts
    }

    /// Sorts an account's webhooks in the same way. Forgets all other webhooks.
    pub(super) fn webhooks_in_turn(&self, account: AccountId, mut webhooks: Vec<QueueId>) -> Vec<QueueId> {
        if let Some(of_account) = self.0.lock().accounts.get_mut(&account) {
            let known = &mut of_account.webhooks;
            known.retain(|webhook, of| of.places > 0 || webhooks.contains(webhook));
            webhooks.sort_by_cached_key(|webhook| {
                known.get(webhook).map_or((0, 0), |of| (of.places, of.last_turn))
            });
        }
        webhooks
    }

    /// Takes all slots that the webhook may still have.
    pub(super) fn take(&self, account: AccountId, webhook: QueueId) -> Vec<AttemptPlace> {
        let mut taken = self.0.lock();
        let free = MAX_ATTEMPTS - taken.places;
        let of_account = taken.accounts.entry(account).or_default();
        let left = free.saturating_sub(FREE_FOR_EACH * of_account.places) / (FREE_FOR_EACH + 1);
        // An account without a slot may take the last free slot.
        let left = if of_account.places == 0 { left.max(1).min(free) } else { left };
        let of_webhook = of_account.webhooks.entry(webhook).or_default();
        let more = left.min(MAX_ATTEMPTS_OF_A_WEBHOOK - of_webhook.places);
        of_webhook.places += more;
        of_account.places += more;
        if more > 0 {
            taken.places += more;
            taken.turn += 1;
            let turn = taken.turn;
            if let Some(of_account) = taken.accounts.get_mut(&account) {
                of_account.last_turn = turn;
                of_account.webhooks.entry(webhook).or_default().last_turn = turn;
            }
        }
        (0..more).map(|_| AttemptPlace { places: self.clone(), account, webhook }).collect()
    }
}

impl Drop for AttemptPlace {
    fn drop(&mut self) {
        let mut taken = self.places.0.lock();
        taken.places -= 1;
        if let Some(of_account) = taken.accounts.get_mut(&self.account) {
            of_account.places -= 1;
            if let Some(of_webhook) = of_account.webhooks.get_mut(&self.webhook) {
                of_webhook.places -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::{ids::WebhookId, time::Timestamp};

    use super::*;

    fn account(n: u8) -> AccountId {
        AccountId::new(Timestamp::from_millis(1), [n; 10])
    }

    fn webhook(n: u8) -> QueueId {
        WebhookId::new(Timestamp::from_millis(1), [n; 10]).into()
    }

    /// Takes all slots that an account can get for twenty webhooks.
    fn all_of(places: &Places, n: u8) -> Vec<AttemptPlace> {
        (0..20).flat_map(|hook| places.take(account(n), webhook(hook))).collect()
    }

    #[test]
    fn an_account_has_a_quarter_of_the_places_and_those_who_come_later_find_some() {
        let places = Places::default();
        let alone = all_of(&places, 0);
        assert_eq!(alone.len(), MAX_ATTEMPTS / 4);
        let mut shares = vec![alone];
        for n in 1..15 {
            shares.push(all_of(&places, n));
            assert!(!shares[usize::from(n)].is_empty(), "account {n}");
        }
        assert!(all_of(&places, 15).is_empty(), "all are taken");
        // A slot that becomes free goes to an account without a slot.
        shares[0].pop();
        assert!((0..15).all(|n| all_of(&places, n).is_empty()));
        assert_eq!(all_of(&places, 15).len(), 1);
        drop(shares);
        assert_eq!(places.take(account(0), webhook(0)).len(), MAX_ATTEMPTS_OF_A_WEBHOOK);
    }

    #[test]
    fn who_has_fewest_attempts_and_waits_longest_is_next() {
        let places = Places::default();
        let (first, second, third) = (account(1), account(2), account(3));
        let held = places.take(first, webhook(1));
        drop(places.take(second, webhook(1)));
        assert_eq!(places.accounts_in_turn(vec![first, second, third]), [third, second, first]);
        drop(held);
        drop(places.take(third, webhook(1)));
        assert_eq!(places.accounts_in_turn(vec![third, second, first]), [first, second, third]);

        let held = places.take(first, webhook(2));
        drop(places.take(first, webhook(3)));
        let all = || [1, 2, 3, 4].map(webhook).to_vec();
        assert_eq!(places.webhooks_in_turn(first, all()), [4, 1, 3, 2].map(webhook));
        drop(held);
        assert_eq!(places.webhooks_in_turn(first, all()), [4, 1, 2, 3].map(webhook));
    }

    #[test]
    fn accounts_and_webhooks_that_are_gone_are_forgotten() {
        let places = Places::default();
        let held = places.take(account(1), webhook(1));
        drop(places.take(account(1), webhook(2)));
        drop(places.take(account(2), webhook(1)));
        places.webhooks_in_turn(account(1), Vec::new());
        places.accounts_in_turn(Vec::new());
        assert_eq!(places.0.lock().accounts.len(), 1);
        assert_eq!(places.0.lock().accounts[&account(1)].webhooks.len(), 1, "an attempt is under way");
        drop(held);
        places.accounts_in_turn(Vec::new());
        assert!(places.0.lock().accounts.is_empty());
    }
}
