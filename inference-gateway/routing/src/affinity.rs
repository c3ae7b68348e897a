//! Sends requests to the upstream that has their prefix in its cache, without revealing an account's prompts to other
//! accounts.
//!
//! A caller that can see how many tokens of a prompt were cached, or how soon the answer came, can discover other
//! callers' prompts, prefix by prefix. So everything here depends on the account: requests of two accounts with the
//! same prefix are routed independently. If an upstream can separate its cache by a salt, each account has its own part
//! of the cache.

use shared::ids::AccountId;

/// Returns the affinity of an account's requests that begin with these bytes. Every gateway computes the same affinity.
pub fn affinity(account: AccountId, opening: &[u8]) -> u64 {
    number("faregate 2026 affinity of prompts", account.to_string().as_bytes(), opening)
}

/// Returns the salt that separates an account's part of an upstream's cache. Like an account id, a salt cannot be
/// guessed, and it does not reveal the account to the upstream.
pub fn cache_salt(account: AccountId) -> String {
    let salt = blake3::derive_key("faregate 2026 salt of prefix caches", account.to_string().as_bytes());
    blake3::Hash::from_bytes(salt).to_hex().to_string()
}

/// Returns the identity of an upstream, the same in every gateway and at every position in the catalogue.
pub fn identity(url: &str, model: &str) -> u64 {
    number("faregate 2026 identity of upstreams", url.as_bytes(), model.as_bytes())
}

/// Hashes two texts. `purpose` separates hashes of different kinds.
fn number(purpose: &str, first: &[u8], second: &[u8]) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key(purpose);
    hasher.update(&(first.len() as u64).to_le_bytes()).update(first).update(second);
    let mut number = [0; 8];
    hasher.finalize_xof().fill(&mut number);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests {
    use shared::time::Timestamp;

    use super::*;

    fn account(number: u8) -> AccountId {
        AccountId::new(Timestamp::from_millis(1), [number; 10])
    }

    #[test]
    fn accounts_that_send_the_same_have_nothing_in_common() {
        assert_ne!(affinity(account(1), b"same"), affinity(account(2), b"same"));
        assert_ne!(cache_salt(account(1)), cache_salt(account(2)));
        assert!(!cache_salt(account(1)).contains(&account(1).to_string()));
    }

    #[test]
    fn an_account_has_the_same_in_common_in_every_gateway_and_version() {
        assert_eq!(affinity(account(1), b"same"), affinity(account(1), b"same"));
        assert_ne!(affinity(account(1), b"same"), affinity(account(1), b"other"));
        assert_eq!(cache_salt(account(1)), cache_salt(account(1)));
        assert_eq!(cache_salt(account(1)).len(), 64);
        assert_ne!(identity("http://a/v1", "m"), identity("http://b/v1", "m"));
    }
}
