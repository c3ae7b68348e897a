//! Attempts to sign in with a password. They are counted in the store before the password is checked.
//!
//! Each count has a fixed number of rows, so that invented names and addresses cannot fill the store. The pepper
//! determines the rows, so an unauthenticated caller cannot find a name or address that shares someone else's row.

use std::time::Duration;

use shared::ids::{AccountId, MemberId};

use crate::management::Management;
use domain::{digest::Digest, member::MemberRefused};
use key_service_store::store::{Error, StoreError};

/// Window over which attempts are counted.
const ATTEMPTS_WITHIN: Duration = Duration::from_mins(15);
/// Number of failed attempts allowed from one address in that window. In an office, many people share one address.
const ATTEMPTS_PER_ADDRESS: u64 = 60;
/// Number of failed attempts allowed for a name from one address, or in a known browser, in that window. This forgives
/// typing errors, and 40 guesses an hour will not find a password.
const ATTEMPTS_PER_NAME_AND_PLACE: u64 = 10;
/// Number of failed attempts allowed for a name from anywhere in that window. 400 guesses an hour will not find a
/// password, and an attacker with a few addresses cannot lock a member out.
const ATTEMPTS_PER_NAME: u64 = 100;

/// Number of a row in a count. Each count has 65,536 rows, so that callers who never sign in cannot fill the store.
type CountRow = u16;

/// An attempt that was counted and whose password has not been checked yet.
pub(crate) struct CountedAttempt {
    /// Rows that a success clears.
    of_name: Vec<Digest>,
    /// Shared rows. A success removes only this attempt from them.
    of_all: Vec<Digest>,
}

impl Management {
    /// Counts an attempt from an unknown browser, or refuses it.
    pub(crate) async fn count_attempt(
        &self,
        account: &str,
        name: &str,
        address: &str,
    ) -> Result<CountedAttempt, Error<MemberRefused>> {
        let of_address = self.attempts_row("address", &[address]);
        let of_both = self.attempts_row("name and address", &[account, name, address]);
        let of_name = self.attempts_row("name", &[account, name]);
        self.count([
            (of_address, ATTEMPTS_PER_ADDRESS),
            (of_both, ATTEMPTS_PER_NAME_AND_PLACE),
            (of_name, ATTEMPTS_PER_NAME),
        ])
        .await?;
        Ok(CountedAttempt { of_name: vec![of_both, of_name], of_all: vec![of_address] })
    }

    /// Counts an attempt in a browser where the member signed in before, or refuses it. Attempts in unknown browsers,
    /// even at the same address, do not count here.
    pub(crate) async fn count_known_attempt(
        &self,
        account: &str,
        name: &str,
        mark: &str,
    ) -> Result<CountedAttempt, Error<MemberRefused>> {
        let of_browser = self.attempts_row("name and browser", &[account, name, mark]);
        let of_name = self.attempts_row("name in known browsers", &[account, name]);
        self.count([(of_browser, ATTEMPTS_PER_NAME_AND_PLACE), (of_name, ATTEMPTS_PER_NAME)]).await?;
        Ok(CountedAttempt { of_name: vec![of_browser], of_all: vec![of_name] })
    }

    /// Counts an attempt to change a password by entering the current one, or refuses it.
    pub(crate) async fn count_change(
        &self,
        account: AccountId,
        member: MemberId,
    ) -> Result<CountedAttempt, Error<MemberRefused>> {
        let row = self.attempts_row("change", &[&account.to_string(), &member.to_string()]);
        self.count([(row, ATTEMPTS_PER_NAME_AND_PLACE)]).await?;
        Ok(CountedAttempt { of_name: vec![row], of_all: Vec::new() })
    }

    /// Counts an attempt to enter a second-factor code, or refuses it. A caller gets this far only with the password or
    /// a link. Six digits allow few guesses, so attempts are counted per member, from wherever they come.
    pub(crate) async fn count_code(
        &self,
        account: AccountId,
        member: MemberId,
    ) -> Result<CountedAttempt, Error<MemberRefused>> {
        let row = self.attempts_row("code", &[&account.to_string(), &member.to_string()]);
        match self.count([(row, ATTEMPTS_PER_NAME_AND_PLACE)]).await {
            Err(Error::Refused(_)) => Err(Error::Refused(MemberRefused::TooManyCodes)),
            counted => counted.map(|()| CountedAttempt { of_name: vec![row], of_all: Vec::new() }),
        }
    }

    /// Counts the attempt in each row in order, and stops at the first row that refuses. An address beyond its limit
    /// therefore writes nothing about names and does not add to the count that could lock a member out.
    async fn count<const N: usize>(&self, rows: [(Digest, u64); N]) -> Result<(), Error<MemberRefused>> {
        let now = self.clock.now();
        for (row, most) in rows {
            if self.store.count_attempt(row, now, now.plus(ATTEMPTS_WITHIN)).await? > most {
                return Err(Error::Refused(MemberRefused::TooManyAttempts));
            }
        }
        Ok(())
    }

    /// Clears the attempts for a name after a success, and removes this attempt from shared rows.
    pub(crate) async fn forget_attempts(&self, counted: CountedAttempt) -> Result<(), StoreError> {
        for row in counted.of_name {
            self.store.forget_attempts(row).await?;
        }
        for row in counted.of_all {
            self.store.take_attempt_back(row).await?;
        }
        Ok(())
    }

    /// Uncounts an attempt whose password could not be checked.
    pub(crate) async fn take_attempt_back(&self, counted: CountedAttempt) -> Result<(), StoreError> {
        for row in counted.of_name.into_iter().chain(counted.of_all) {
            self.store.take_attempt_back(row).await?;
        }
        Ok(())
    }

    fn attempts_row(&self, count: &str, of: &[&str]) -> Digest {
        let of = format!("{count}\0{}", of.join("\0"));
        let [first, second, ..] = *self.credentials.keyed_digest(of).as_bytes();
        let row: CountRow = CountRow::from_be_bytes([first, second]);
        Digest::of(format!("attempts by {count}\0{row}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::testing::Office;

    /// Returns whether an attempt got as far as the password check.
    async fn counted(office: &Office, name: &str, address: &str) -> bool {
        match office.management.count_attempt("acme", name, address).await {
            Ok(_) => true,
            Err(Error::Refused(refused)) => {
                assert_eq!(refused, MemberRefused::TooManyAttempts);
                false
            }
            Err(Error::Store(e)) => panic!("{e}"),
        }
    }

    #[tokio::test]
    async fn an_address_past_its_bound_writes_nothing_about_names() {
        let office = Office::open();
        for n in 0..ATTEMPTS_PER_ADDRESS {
            assert!(counted(&office, &format!("name {n}"), "192.0.2.1").await);
        }
        let before = office.records.count_in("attempts/");
        for n in 0..500 {
            assert!(!counted(&office, &format!("other {n}"), "192.0.2.1").await);
        }
        assert_eq!(office.records.count_in("attempts/"), before);
    }

    #[test]
    fn names_without_end_take_a_bounded_number_of_rows() {
        let office = Office::open();
        let row = |n: u32| *office.management.attempts_row("name", &["acme", &n.to_string()]).as_bytes();
        let rows: HashSet<_> = (0..4 * u32::from(CountRow::MAX)).map(row).collect();
        assert!(rows.len() <= usize::from(CountRow::MAX) + 1, "{}", rows.len());
    }

    #[tokio::test]
    async fn an_unauthenticated_client_that_guesses_does_not_lock_a_member_out() {
        let office = Office::open();
        for n in 0..3 * ATTEMPTS_PER_NAME_AND_PLACE {
            assert_eq!(counted(&office, "owner", "192.0.2.1").await, n < ATTEMPTS_PER_NAME_AND_PLACE);
        }
        assert!(counted(&office, "owner", "192.0.2.2").await);
        assert!(counted(&office, "other", "192.0.2.1").await);
    }

    #[tokio::test]
    async fn guesses_from_many_addresses_have_a_bound_of_their_own() {
        let office = Office::open();
        for n in 0..ATTEMPTS_PER_NAME {
            let address = format!("192.0.2.{}", n / ATTEMPTS_PER_NAME_AND_PLACE);
            assert!(counted(&office, "owner", &address).await);
        }
        assert!(!counted(&office, "owner", "192.0.2.99").await);
        assert!(counted(&office, "other", "192.0.2.99").await);
    }

    #[tokio::test]
    async fn a_success_forgets_the_attempts_with_its_name() {
        let office = Office::open();
        for _ in 0..3 {
            for _ in 1..ATTEMPTS_PER_NAME_AND_PLACE {
                assert!(counted(&office, "owner", "192.0.2.1").await);
            }
            let last = office.management.count_attempt("acme", "owner", "192.0.2.1").await.unwrap();
            office.management.forget_attempts(last).await.unwrap();
        }
    }
    #[tokio::test]
    async fn successes_of_an_address_are_not_counted_against_it() {
        let office = Office::open();
        for n in 0..2 * ATTEMPTS_PER_ADDRESS {
            let name = format!("name {n}");
            let right = office.management.count_attempt("acme", &name, "192.0.2.1").await.unwrap();
            office.management.forget_attempts(right).await.unwrap();
        }
        for n in 0..=ATTEMPTS_PER_ADDRESS {
            assert_eq!(counted(&office, &format!("name {n}"), "192.0.2.1").await, n < ATTEMPTS_PER_ADDRESS);
        }
    }

    #[tokio::test]
    async fn a_known_browser_is_judged_apart_from_others_of_its_own_address_too() {
        let office = Office::open();
        for n in 0..2 * ATTEMPTS_PER_ADDRESS {
            counted(&office, if n % 2 == 0 { "owner" } else { "invented" }, "192.0.2.1").await;
        }
        for n in 0..2 * ATTEMPTS_PER_NAME {
            counted(&office, "owner", &format!("198.51.100.{n}")).await;
        }
        assert!(!counted(&office, "owner", "192.0.2.99").await);
        let known =
            async |mark: &str| office.management.count_known_attempt("acme", "owner", mark).await.is_ok();
        for n in 0..=ATTEMPTS_PER_NAME_AND_PLACE {
            assert_eq!(known("one").await, n < ATTEMPTS_PER_NAME_AND_PLACE);
        }
        assert!(known("another").await);
        let all = 0..2 * ATTEMPTS_PER_NAME;
        let mut guesses = 0;
        for n in all {
            guesses += u64::from(known(&format!("browser {n}")).await);
        }
        assert!(guesses < ATTEMPTS_PER_NAME, "many marks do not bypass the limit for a name");
    }
}
