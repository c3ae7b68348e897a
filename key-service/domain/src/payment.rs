//! Payments: an operator's own ids, so that each payment is added to an account's credit once.

use serde::{Deserialize, Serialize};
use shared::{
    ids::{AccountId, DepositId},
    text::is_name,
    time::Timestamp,
};

/// Largest number of characters of a payment's id, the same as for the `external_id` of a group.
pub const MAX_PAYMENT_ID_CHARS: usize = 128;

/// Id of a payment in the operator's billing system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PaymentId(String);

impl PaymentId {
    /// Reads an id of 1 to [`MAX_PAYMENT_ID_CHARS`] visible characters, so that no two ids look alike.
    pub fn parse(text: &str) -> Option<Self> {
        is_name(text, MAX_PAYMENT_ID_CHARS).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Derives the deposit of this payment to an account, the same each time. The deposit's id has no time, since
    /// whoever sends a payment again does not know when it was sent first.
    pub fn deposit(&self, account: AccountId) -> DepositId {
        let mut hasher = blake3::Hasher::new_derive_key("faregate 2026 deposits of payments");
        hasher.update(account.as_bytes()).update(self.0.as_bytes());
        let mut chance = [0; 10];
        hasher.finalize_xof().fill(&mut chance);
        DepositId::new(Timestamp::from_millis(0), chance)
    }
}

/// A payment that was added to an account's credit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    pub id: PaymentId,
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payment_has_one_deposit_in_each_account() {
        let account = |n| AccountId::new(Timestamp::from_millis(1), [n; 10]);
        let payment = |text| PaymentId::parse(text).unwrap();
        let deposit = payment("pay_1").deposit(account(1));
        assert_eq!(payment("pay_1").deposit(account(1)), deposit);
        assert_ne!(payment("pay_2").deposit(account(1)), deposit);
        assert_ne!(payment("pay_1").deposit(account(2)), deposit);
    }

    #[test]
    fn an_id_of_a_payment_can_be_seen_and_fits_a_line() {
        assert!(PaymentId::parse(&"é".repeat(128)).is_some() && PaymentId::parse("Invoice 7/2026").is_some());
        for bad in ["", " ", " pay_1", "pay\n1", "pay\u{200b}1", &"x".repeat(129)] {
            assert_eq!(PaymentId::parse(bad), None, "{bad:?}");
        }
    }
}
