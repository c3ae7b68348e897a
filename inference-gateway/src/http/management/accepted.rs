//! Remembers the accounts of credentials that a key-service has accepted.
//!
//! Before a gateway reads a request's body, it must know which account's permit the request needs. A credential always
//! belongs to the same account, so the gateway asks only once. After that, only the key-service that executes a request
//! checks the credential.

use quick_cache::sync::Cache;
use shared::{ids::AccountId, key::Class};

/// Maximum number of credentials that are remembered: more than there are programs that manage keys through one
/// gateway. For a credential that was forgotten, the gateway asks again.
const REMEMBERED: usize = 4_096;

/// Digest of a credential and of the class of credentials that its route needs. No plaintext is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in super::super) struct CredentialMark([u8; 32]);

impl CredentialMark {
    pub(in super::super) fn of(credential: &str, class: Class) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(match class {
            Class::Api => b"a",
            Class::Management => b"m",
            Class::Operator => b"o",
        });
        hasher.update(credential.as_bytes());
        Self(*hasher.finalize().as_bytes())
    }
}

pub(in super::super) struct AcceptedCredentials(Cache<CredentialMark, AccountId>);

impl AcceptedCredentials {
    pub(super) fn new() -> Self {
        Self(Cache::new(REMEMBERED))
    }

    pub(in super::super) fn account(&self, mark: CredentialMark) -> Option<AccountId> {
        self.0.get(&mark)
    }

    pub(in super::super) fn accept(&self, mark: CredentialMark, account: AccountId) {
        self.0.insert(mark, account);
    }

    /// Forgets a credential that a key-service has refused, so that its next request takes none of the account's
    /// permits.
    pub(in super::super) fn refuse(&self, mark: CredentialMark) {
        self.0.remove(&mark);
    }
}

#[cfg(test)]
mod tests {
    use shared::clock::System;

    use super::*;

    #[test]
    fn a_credential_is_known_for_its_class_until_it_is_refused() {
        let (accepted, account) = (AcceptedCredentials::new(), AccountId::generate(&System));
        let [api, management] = [Class::Api, Class::Management].map(|class| CredentialMark::of("one", class));
        accepted.accept(management, account);
        assert_eq!((accepted.account(management), accepted.account(api)), (Some(account), None));
        assert_eq!(accepted.account(CredentialMark::of("another", Class::Management)), None);
        accepted.refuse(management);
        assert_eq!(accepted.account(management), None);
    }
}
