//! Limits on concurrent exports.

use shared::ids::AccountId;
use shared_door::admission::{Owner, Permit, Quota};

use crate::failure::Failure;

/// Maximum number of concurrent exports in this process. Each reads the journal until its client has the whole file.
const EXPORTS_AT_ONCE: usize = 16;
/// Maximum number of concurrent exports in an account.
const EXPORTS_PER_ACCOUNT: usize = 2;

/// The quota of exports. Cheap to clone.
#[derive(Clone)]
pub struct Exports(Quota);

impl Exports {
    pub(crate) fn new() -> Self {
        Self(Quota::new(EXPORTS_AT_ONCE, EXPORTS_PER_ACCOUNT))
    }

    /// Admits an export of this account until the permit is dropped.
    pub fn begin(&self, account: AccountId) -> Result<Permit, Failure> {
        self.0.try_take(Owner::Account(account), 1).ok_or(Failure::TooManyExports)
    }
}

#[cfg(test)]
mod tests {
    use shared::clock::System;

    use super::*;

    #[test]
    fn an_account_loads_two_files_at_a_time_and_others_have_places_of_their_own() {
        let exports = Exports::new();
        let (one, other) = (AccountId::generate(&System), AccountId::generate(&System));
        let first = [exports.begin(one).unwrap(), exports.begin(one).unwrap()];
        assert!(matches!(exports.begin(one), Err(Failure::TooManyExports)));
        assert!(exports.begin(other).is_ok());
        drop(first);
        let accounts = (0..EXPORTS_AT_ONCE).map(|_| AccountId::generate(&System));
        let all: Vec<_> = accounts.map(|account| exports.begin(account).unwrap()).collect();
        assert!(exports.begin(one).is_err());
        drop(all);
        assert!(exports.begin(one).is_ok());
    }
}
