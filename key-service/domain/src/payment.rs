//! Payments, identified by the operator's billing system so that each is added to an account's credit only once.

use std::str::FromStr;

use minicbor::{Decode, Encode};
use serde::{Deserialize, Serialize};
use shared::{
    ids::{AccountId, DepositId},
    text::is_name,
    time::Timestamp,
    wire::MAX_PAYMENT_ID_CHARS,
};

/// Id of a payment in the operator's billing system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PaymentId(String);

impl PaymentId {
    /// Parses an id of 1 to [`MAX_PAYMENT_ID_CHARS`] printable ASCII characters, with no space at either end and no two
    /// spaces in a row. Other Unicode characters are refused: they include look-alikes and several ways to write the
    /// same letter, so a payment could be added twice.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        Self::stored(text).filter(|_| is_plain && !text.contains("  "))
    }

    /// Parses an id from a store. Earlier versions accepted any visible characters.
    pub fn stored(text: &str) -> Option<Self> {
        is_name(text, MAX_PAYMENT_ID_CHARS).then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Derives the id of this payment's deposit to an account, which is always the same. The id contains no time, since
    /// a repeated request does not know when the payment was first sent.
    pub fn deposit(&self, account: AccountId) -> DepositId {
        let mut hasher = blake3::Hasher::new_derive_key("faregate 2026 deposits of payments");
        hasher.update(account.as_bytes()).update(self.0.as_bytes());
        let mut chance = [0; 10];
        hasher.finalize_xof().fill(&mut chance);
        DepositId::new(Timestamp::from_millis(0), chance)
    }
}

impl FromStr for PaymentId {
    type Err = ();

    /// Reads an id that may be stored.
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::stored(text).ok_or(())
    }
}

shared::stored_as_text! { PaymentId: PaymentId::as_str, PaymentId::stored; }

/// A payment that was added to an account's credit.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode, Serialize)]
pub struct Payment {
    #[n(0)]
    pub id: PaymentId,
    #[n(1)]
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
    fn ids_of_payments_that_look_alike_are_not_accepted() {
        for good in [&"x".repeat(128), "Invoice 7/2026", "pay_1", "PAY_1"] {
            assert!(PaymentId::parse(good).is_some(), "{good:?}");
        }
        let alike =
            ["p\u{430}y_1", "pay\u{ff3f}1", "pay 1\u{a0}", "pay  1", "pay\u{a0}1", "pa\u{301}y", "p\u{e1}y"];
        for bad in ["", " ", " pay_1", "pay_1 ", "pay\n1", "pay\t1", "pay\u{200b}1", &"x".repeat(129)]
            .into_iter()
            .chain(alike)
        {
            assert_eq!(PaymentId::parse(bad), None, "{bad:?}");
        }
        assert!(
            PaymentId::stored("Rechnung 7 \u{2013} M\u{e4}rz").is_some(),
            "ids from earlier versions are still read"
        );
    }
}
