//! Payments and refunds: each takes effect once for its id, on the account, on a group's wallet, or on both at once.

use shared::{money::NanoUsd, time::Timestamp};

use crate::{
    ledger::{
        bounds::plus,
        command::{Command, Outcome, Refused},
        record::{Deposited, PaymentTerms, Record, RefundAsked, WalletChange},
        state::{Account, Group, LastDeposit, State, Wallet},
    },
    payment::{Payment, PaymentId},
};

/// A payment or a refund, as a command asks for it.
pub(super) struct Asked<'a> {
    terms: PaymentTerms,
    payment_id: Option<&'a PaymentId>,
    note: &'a str,
    /// Whether a refund takes what is there, if that is less than its amount.
    partial: bool,
    of: Option<&'a PaymentId>,
}

impl<'a> Asked<'a> {
    /// Reads a command; `None` if it neither pays nor refunds.
    pub(super) fn of(command: &'a Command) -> Option<Self> {
        match command {
            Command::Deposit { amount, note, payment_id, to, .. } => Some(Self {
                terms: PaymentTerms { amount: *amount, to: *to, is_refund: false },
                payment_id: payment_id.as_ref(),
                note,
                partial: false,
                of: None,
            }),
            Command::Refund { payment_id, amount, from, partial, of, note, .. } => Some(Self {
                terms: PaymentTerms { amount: *amount, to: *from, is_refund: true },
                payment_id: Some(payment_id),
                note,
                partial: *partial,
                of: of.as_ref(),
            }),
            Command::Tick { .. }
            | Command::Check { .. }
            | Command::Hold(_)
            | Command::Extend { .. }
            | Command::Capture { .. }
            | Command::Release { .. }
            | Command::Expire { .. } => None,
        }
    }
}

/// Pays or refunds, unless the id was used before.
pub(super) fn apply(
    mut state: State,
    asked: &Asked<'_>,
    now: Timestamp,
) -> Result<(State, Outcome), Refused> {
    match &state.record {
        Record::None => {}
        Record::Deposited(earlier) if earlier.terms() != asked.terms => {
            return Err(Refused::DepositDiffers { earlier: earlier.terms() });
        }
        Record::Deposited(earlier) => {
            let credit = earlier.credit.or(Some(state.account.credit));
            let deposited = Box::new(Deposited { credit, ..earlier.clone() });
            return Ok((state, Outcome::Deposited { deposited, is_new: false }));
        }
        Record::Open(_) | Record::Closed(_) => return Ok((state, Outcome::Gone)),
    }
    let PaymentTerms { amount, to, is_refund } = asked.terms;
    if !is_refund && state.account.standing.is_some_and(|standing| standing.is_closed()) {
        return Err(Refused::AccountClosed);
    }
    if amount <= NanoUsd::ZERO {
        return Err(Refused::BadDeposit);
    }
    let mut wallet = None;
    if to.group().is_some() {
        wallet = Some(state.groups[0].take().ok_or(Refused::UnknownGroup)?);
    }
    let change = if is_refund {
        let taken = refundable(&state.account, wallet.as_ref().map(|(_, group)| group), asked)?;
        NanoUsd::from_nanos(-taken.nanos())
    } else {
        if wallet.as_ref().is_some_and(|(_, group)| group.archived_at.is_some()) {
            return Err(Refused::GroupArchived);
        }
        amount
    };
    let of_credit = if to.changes_credit() { change } else { NanoUsd::ZERO };
    let credit = state.account.credit.checked_add(of_credit);
    let credit = credit.filter(|credit| *credit <= NanoUsd::MAX).ok_or(Refused::BadDeposit)?;
    let mut changed = None;
    if let Some((id, group)) = &mut wallet {
        let limit = group.pay(change, now)?;
        changed = Some(WalletChange { group: *id, change, limit, is_alone: !to.changes_credit() });
    }
    let last_deposit = if of_credit > NanoUsd::ZERO {
        Some(LastDeposit { credit, at: now })
    } else {
        state.account.last_deposit
    };
    let deposited = Deposited {
        amount: of_credit,
        credit: Some(credit),
        note: asked.note.to_owned(),
        payment: asked.payment_id.cloned().map(|id| Payment { id, at: now }),
        wallet: changed,
        refund: is_refund.then(|| RefundAsked { amount, of: asked.of.cloned() }),
    };
    let account = Account { credit, last_deposit, ..state.account };
    let record = Record::Deposited(deposited.clone());
    let outcome = Outcome::Deposited { deposited: Box::new(deposited), is_new: true };
    Ok((State { account, record, groups: [wallet, None], ..state }, outcome))
}

/// Returns the amount that a refund takes: at most what is neither used nor held.
fn refundable(account: &Account, group: Option<&Group>, asked: &Asked<'_>) -> Result<NanoUsd, Refused> {
    let PaymentTerms { amount, to, .. } = asked.terms;
    let mut available = NanoUsd::MAX;
    if to.changes_credit() {
        available = account.credit.left_after(account.held);
    }
    if let Some(Group { budget, .. }) = group {
        // A raise is not money that was paid, so the limit counts without its raise.
        let limit = budget.limit.ok_or(Refused::NoLimit)?;
        available = available.min(limit.left_after(budget.used).left_after(budget.held));
    }
    if available < amount && !asked.partial {
        return Err(Refused::CreditTooLow { available });
    }
    Ok(amount.min(available))
}

impl Group {
    /// Adds an amount to the limit. A negative amount lowers the limit. Returns the new limit. The first time, the
    /// group becomes a wallet.
    fn pay(&mut self, change: NanoUsd, now: Timestamp) -> Result<NanoUsd, Refused> {
        let opening = self.budget.limit.ok_or(Refused::NoLimit)?;
        let limit = self.budget.move_limit(change, now).ok_or(Refused::LimitTooHigh)?;
        let Wallet { opening, paid } = self.wallet.unwrap_or(Wallet { opening, paid: NanoUsd::ZERO });
        self.wallet = Some(Wallet { opening, paid: plus(paid, change) });
        Ok(limit)
    }
}
