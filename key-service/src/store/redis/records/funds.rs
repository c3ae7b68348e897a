//! Money, lease time, and length of the journal of an account.

use shared::{money::NanoUsd, time::Timestamp};

use super::{Reader, damaged};
use crate::store::StoreError;
use domain::{
    ledger::{self, Deposited},
    payment::{Payment, PaymentId},
};

/// Field of an account's hash with the funds.
pub(in crate::store::redis) const FUNDS: &str = "funds";

/// Money, lease time, and length of the journal of an account.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store::redis) struct FundsRecord {
    pub(in crate::store::redis) credit: NanoUsd,
    pub(in crate::store::redis) held: NanoUsd,
    pub(in crate::store::redis) tick: u64,
}

impl FundsRecord {
    /// The funds of a new account: credit, held, tick, entries, last expiry, hour of the last settlement.
    pub(in crate::store::redis) const NEW: [u8; 48] = [0; 48];

    pub(in crate::store::redis) fn read(record: &[u8]) -> Result<Self, StoreError> {
        let mut reader = Reader(record);
        let mut read =
            || Some(Self { credit: reader.money()?, held: reader.money()?, tick: reader.count()? });
        read().ok_or_else(|| damaged("the funds of an account"))
    }

    pub(in crate::store::redis) fn account(self) -> ledger::Account {
        ledger::Account { credit: self.credit, held: self.held, tick: self.tick, last_deposit: None }
    }
}

/// Writes the note of a deposit, and where there is a payment a line with its time and its id. A version without payments reads
/// both as the note.
pub(in crate::store::redis) fn write_note(note: &str, payment: Option<&PaymentId>, now: Timestamp) -> String {
    match payment {
        None => note.to_owned(),
        Some(id) => format!("{note}\n{} {}", now.millis(), id.as_str()),
    }
}

/// Reads a deposit: the amount, where it was recorded the credit just after the deposit, and the note as [`write_note`] has it.
pub(in crate::store::redis) fn read_deposit(text: &str) -> Result<Deposited, StoreError> {
    let mut parts = text.splitn(3, ' ');
    let mut money = || {
        let number = parts.next().map(|digits| digits.parse().map(NanoUsd::from_nanos));
        number.transpose().map_err(|_| damaged("a deposit"))
    };
    let (amount, credit) = (money()?.ok_or_else(|| damaged("a deposit"))?, money()?);
    let text = parts.next().unwrap_or_default();
    let (note, payment) = match text.split_once('\n') {
        None => (text, None),
        Some((note, payment)) => (note, Some(read_payment(payment).ok_or_else(|| damaged("a deposit"))?)),
    };
    Ok(Deposited { amount, credit, note: note.to_owned(), payment })
}

fn read_payment(text: &str) -> Option<Payment> {
    let (at, id) = text.split_once(' ')?;
    Some(Payment { at: Timestamp::from_millis(at.parse().ok()?), id: PaymentId::parse(id)? })
}
