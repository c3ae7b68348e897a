//! Accounts of credentials, learned from answers. They are used only to choose a key-service for a call.

use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use quick_cache::sync::Cache;
use shared::ids::AccountId;
use shared_rpc::{Answer, Call};

/// Number of credentials whose accounts are remembered.
const REMEMBERED: usize = 16_384;

/// Accounts, keyed by a hash of the credential that differs between processes.
pub(super) struct KnownAccounts {
    accounts: Cache<u64, AccountId>,
    hasher: RandomState,
}

impl Default for KnownAccounts {
    fn default() -> Self {
        Self { accounts: Cache::new(REMEMBERED), hasher: RandomState::default() }
    }
}

impl KnownAccounts {
    /// Returns the account that a call concerns, if known.
    pub(super) fn of(&self, call: &Call) -> Option<AccountId> {
        let hash = |credential| self.hasher.hash_one(credential);
        call.account().or_else(|| self.accounts.get(&hash(call.credential()?)))
    }

    /// Remembers the account in an answer.
    pub(super) fn learn(&self, call: &Call, answer: &Answer) {
        let account = match answer {
            Answer::Authorized(Ok(grant)) => grant.hold.account,
            Answer::Authenticated(Ok(identity)) => identity.account(),
            Answer::Authorized(Err(_))
            | Answer::Authenticated(Err(_))
            | Answer::Extended(_)
            | Answer::Captured(_)
            | Answer::Released => return,
        };
        if let Some(credential) = call.credential() {
            let hash = self.hasher.hash_one(credential);
            if self.accounts.get(&hash) != Some(account) {
                self.accounts.insert(hash, account);
            }
        }
    }
}
