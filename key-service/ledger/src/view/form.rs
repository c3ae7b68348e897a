//! Versions of the format of stored records.

use std::any::Any;

use domain::ledger::{Deposited, Group, Record};

use crate::stored::{AccountRecord, Balance};

/// Format version of most records.
pub const FORM: u8 = 1;
/// Format version of accounts that are suspended or closed, of groups with a wallet, and of payments into wallets and
/// refunds. A program that does not know this version refuses such a record, rather than forget the suspension or the
/// wallet when it writes the record. It is the latest version that this program reads.
pub const LATER_FORM: u8 = 2;

/// Returns the format version to write a value with.
pub(super) fn of(value: &dyn Any) -> u8 {
    let is_later = if let Some(AccountRecord { money, .. }) = value.downcast_ref() {
        money.standing.is_some()
    } else if let Some(balance) = value.downcast_ref::<Balance<Group>>() {
        balance.of.wallet.is_some()
    } else if let Some(Record::Deposited(Deposited { wallet, refund, .. })) = value.downcast_ref() {
        wallet.is_some() || refund.is_some()
    } else {
        false
    };
    if is_later { LATER_FORM } else { FORM }
}

#[cfg(test)]
mod tests {
    use domain::ledger::{Account, RefundAsked, Standing, Wallet, WalletChange};
    use shared::{ids::GroupId, money::NanoUsd, time::Timestamp};

    use super::*;

    #[test]
    fn records_with_a_standing_a_wallet_or_a_refund_have_the_later_form_and_no_others() {
        let amount = NanoUsd::from_nanos(5);
        let group = |wallet| Balance { of: Group { wallet, ..Group::default() }, last_entry: 3 };
        let account = |standing| AccountRecord {
            money: Account { standing, ..Account::default() },
            ..AccountRecord::default()
        };
        let suspended = Standing { suspended_at: Timestamp::from_millis(1), closed_at: None };
        assert_eq!((of(&group(None)), of(&account(None))), (FORM, FORM));
        assert_eq!(of(&account(Some(suspended))), LATER_FORM);
        assert_eq!(of(&group(Some(Wallet { opening: amount, paid: amount }))), LATER_FORM);
        let plain = Deposited {
            amount,
            credit: None,
            note: String::new(),
            payment: None,
            wallet: None,
            refund: None,
        };
        let id = GroupId::new(Timestamp::from_millis(1), [1; 10]);
        let wallet = Some(WalletChange { group: id, change: amount, limit: amount, is_alone: false });
        let refund = Some(RefundAsked { amount, of: None });
        assert_eq!((of(&Record::Deposited(plain.clone())), of(&Record::None)), (FORM, FORM));
        assert_eq!(of(&Record::Deposited(Deposited { wallet, ..plain.clone() })), LATER_FORM);
        assert_eq!(of(&Record::Deposited(Deposited { refund, ..plain })), LATER_FORM);
    }
}
