//! Attempts to sign in with a password: counted in the store before they are judged.
//!
//! Counts lie in a fixed number of rows, so that invented names and addresses do not fill a store. Rows are chosen with the
//! pepper: a stranger cannot find a name or an address that shares the row of someone else.

use std::time::Duration;

use super::MemberRefused;
use crate::{
    digest::Digest,
    management::{Error, Management},
    store::Unavailable,
};

/// Time over which attempts are counted.
const ATTEMPTS_WITHIN: Duration = Duration::from_mins(15);
/// Attempts from one address within that time: an office has one address and many people.
const ATTEMPTS_PER_ADDRESS: u64 = 60;
/// Attempts with one name from one address within that time: people mistype, and 40 guesses an hour find no password.
const ATTEMPTS_PER_NAME_AND_ADDRESS: u64 = 10;
/// Attempts with one name from everywhere within that time: no password falls to 400 guesses an hour, and a stranger with
/// a few addresses does not lock a member out.
const ATTEMPTS_PER_NAME: u64 = 100;

/// Rows of each of the three counts, some 12 MiB in Redis when all of them are in use.
type Row = u16;

/// The rows of an attempt that a success forgets.
pub(super) struct CountedAttempt {
    name_and_address: Digest,
    name: Digest,
}

impl Management {
    /// Counts an attempt, or refuses it. What is refused by one count is not counted by the next one: an address past its
    /// bound writes nothing about names, and adds nothing to the count that could lock a member out.
    pub(super) async fn count_attempt(
        &self,
        account: &str,
        name: &str,
        address: &str,
    ) -> Result<CountedAttempt, Error<MemberRefused>> {
        let row = |count: &str, of: &[&str]| self.attempts_row(count, of);
        let counted = CountedAttempt {
            name_and_address: row("name and address", &[account, name, address]),
            name: row("name", &[account, name]),
        };
        let now = self.clock.now();
        for (row, most) in [
            (row("address", &[address]), ATTEMPTS_PER_ADDRESS),
            (counted.name_and_address, ATTEMPTS_PER_NAME_AND_ADDRESS),
            (counted.name, ATTEMPTS_PER_NAME),
        ] {
            if self.store.count_attempt(row, now, now.plus(ATTEMPTS_WITHIN)).await? > most {
                return Err(Error::Refused(MemberRefused::TooManyAttempts));
            }
        }
        Ok(counted)
    }

    /// Forgets the attempts with a name after one that succeeded.
    pub(super) async fn forget_attempts(&self, counted: CountedAttempt) -> Result<(), Unavailable> {
        self.store.forget_attempts(counted.name_and_address).await?;
        self.store.forget_attempts(counted.name).await
    }

    fn attempts_row(&self, count: &str, of: &[&str]) -> Digest {
        let of = format!("{count}\0{}", of.join("\0"));
        let [first, second, ..] = *self.credentials.keyed_digest(of).as_bytes();
        let row: Row = Row::from_be_bytes([first, second]);
        Digest::of(format!("attempts by {count}\0{row}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::management::testing::Office;

    /// Returns whether an attempt was let through to its password.
    async fn counted(office: &Office, name: &str, address: &str) -> bool {
        match office.management.count_attempt("acme", name, address).await {
            Ok(_) => true,
            Err(Error::Refused(refused)) => {
                assert_eq!(refused, MemberRefused::TooManyAttempts);
                false
            }
            Err(Error::Unavailable(e)) => panic!("{e}"),
        }
    }

    #[tokio::test]
    async fn an_address_past_its_bound_writes_nothing_about_names() {
        let office = Office::open();
        for n in 0..ATTEMPTS_PER_ADDRESS {
            assert!(counted(&office, &format!("name {n}"), "192.0.2.1").await);
        }
        let before = office.store.counted_attempts();
        for n in 0..500 {
            assert!(!counted(&office, &format!("other {n}"), "192.0.2.1").await);
        }
        assert_eq!(office.store.counted_attempts(), before);
    }

    #[test]
    fn names_without_end_take_a_bounded_number_of_rows() {
        let office = Office::open();
        let row = |n: u32| *office.management.attempts_row("name", &["acme", &n.to_string()]).as_bytes();
        let rows: HashSet<_> = (0..4 * u32::from(Row::MAX)).map(row).collect();
        assert!(rows.len() <= usize::from(Row::MAX) + 1, "{}", rows.len());
    }

    #[tokio::test]
    async fn a_stranger_who_guesses_does_not_lock_a_member_out() {
        let office = Office::open();
        for n in 0..3 * ATTEMPTS_PER_NAME_AND_ADDRESS {
            assert_eq!(counted(&office, "owner", "192.0.2.1").await, n < ATTEMPTS_PER_NAME_AND_ADDRESS);
        }
        assert!(counted(&office, "owner", "192.0.2.2").await);
        assert!(counted(&office, "other", "192.0.2.1").await);
    }

    #[tokio::test]
    async fn guesses_from_many_addresses_have_a_bound_of_their_own() {
        let office = Office::open();
        for n in 0..ATTEMPTS_PER_NAME {
            let address = format!("192.0.2.{}", n / ATTEMPTS_PER_NAME_AND_ADDRESS);
            assert!(counted(&office, "owner", &address).await);
        }
        assert!(!counted(&office, "owner", "192.0.2.99").await);
        assert!(counted(&office, "other", "192.0.2.99").await);
    }

    #[tokio::test]
    async fn a_success_forgets_the_attempts_with_its_name() {
        let office = Office::open();
        for _ in 0..3 {
            for _ in 1..ATTEMPTS_PER_NAME_AND_ADDRESS {
                assert!(counted(&office, "owner", "192.0.2.1").await);
            }
            let last = office.management.count_attempt("acme", "owner", "192.0.2.1").await.unwrap();
            office.management.forget_attempts(last).await.unwrap();
        }
    }
}
