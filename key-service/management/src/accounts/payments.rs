//! Use cases for payments and refunds: of an account, of a group's wallet, or of both in one commit.

use async_trait::async_trait;
use shared::{
    clock::random_bytes,
    ids::{AccountId, DepositId, GroupId},
    money::NanoUsd,
};

use crate::{
    management::Management,
    nouns::listing::{Listed, Listing, Page, Paged, UnknownCursor},
};
use domain::{
    event::Actor,
    governed::payments::PaymentRefused,
    ledger::{Command, Outcome, PaidTo, Refused},
    payment::PaymentId,
};
use key_service_store::store::{Deposit, Error, Ledger as _, StoreError};

/// A payment: credit to add to an account, and to the limit of a group.
#[derive(Clone, Debug)]
pub struct NewDeposit {
    pub amount: NanoUsd,
    /// Note for people; may be empty.
    pub note: String,
    /// Id of the payment in the operator's billing system. A payment with an id is added only once.
    pub payment_id: Option<PaymentId>,
    pub to: PaidTo,
}

impl NewDeposit {
    /// Returns a deposit of this amount to the account, without a note or a payment id.
    pub const fn of(amount: NanoUsd) -> Self {
        Self { amount, note: String::new(), payment_id: None, to: PaidTo::Account }
    }
}

/// A refund, a chargeback or a correction.
#[derive(Clone, Debug)]
pub struct NewRefund {
    /// Id of the refund itself. No two payments or refunds of an account have the same id.
    pub payment_id: PaymentId,
    pub amount: NanoUsd,
    pub from: PaidTo,
    /// Whether to take everything that is neither used nor held if that is less than the amount.
    pub partial: bool,
    /// The payment that is refunded, which must exist.
    pub of: Option<PaymentId>,
    /// Note for people; may be empty.
    pub note: String,
}

/// A payment or refund that took effect, either with this request or earlier.
#[derive(Clone, Debug)]
pub struct Paid {
    pub deposit: Deposit,
    /// Whether it took effect with this request.
    pub is_new: bool,
}

impl Paid {
    /// Returns the account's credit right after the payment or refund.
    pub fn credit(&self) -> NanoUsd {
        self.deposit.deposited.credit.unwrap_or(NanoUsd::ZERO)
    }
}

impl Management {
    /// Adds a payment. A payment that was added before adds nothing and gets the same answer, even from a full store.
    pub async fn deposit(
        &self,
        account: AccountId,
        deposit: NewDeposit,
        actor: Actor,
    ) -> Result<Paid, Error<PaymentRefused>> {
        let known = match &deposit.payment_id {
            Some(payment) => self.store.payment(account, payment).await?,
            None => None,
        };
        if known.is_none() {
            self.check_room().await?;
        }
        self.add_credit(account, deposit, actor).await
    }

    /// Adds a payment even if the store is nearly full.
    pub(crate) async fn add_credit(
        &self,
        account: AccountId,
        deposit: NewDeposit,
        actor: Actor,
    ) -> Result<Paid, Error<PaymentRefused>> {
        let NewDeposit { amount, note, payment_id, to } = deposit;
        let id = match &payment_id {
            Some(payment) => payment.deposit(account),
            None => DepositId::new(self.clock.now(), random_bytes(&*self.clock)),
        };
        self.take_effect(account, id, Command::Deposit { id, amount, note, payment_id, to, actor }).await
    }

    /// Takes back money that is neither used nor held. A refund that was made before takes nothing and gets the same
    /// answer.
    pub async fn refund(
        &self,
        account: AccountId,
        refund: NewRefund,
        actor: Actor,
    ) -> Result<Paid, Error<PaymentRefused>> {
        let NewRefund { payment_id, amount, from, partial, of, note } = refund;
        // Payments are never deleted, so this payment cannot disappear before the refund is committed.
        if let Some(of) = &of {
            let paid = self.store.payment(account, of).await?;
            if paid.is_none_or(|paid| paid.deposited.refund.is_some()) {
                return Err(Error::Refused(PaymentRefused::PaymentNotFound));
            }
        }
        let id = payment_id.deposit(account);
        let command = Command::Refund { id, payment_id, amount, from, partial, of, note, actor };
        self.take_effect(account, id, command).await
    }

    async fn take_effect(
        &self,
        account: AccountId,
        id: DepositId,
        command: Command,
    ) -> Result<Paid, Error<PaymentRefused>> {
        let outcomes = self.store.execute(account, vec![command], self.clock.now()).await?;
        let refused = match outcomes.into_iter().next() {
            Some(Ok(Outcome::Deposited { deposited, is_new })) => {
                return Ok(Paid { deposit: Deposit { id, deposited: *deposited }, is_new });
            }
            Some(Err(Refused::UnknownKey)) => PaymentRefused::NoAccount,
            Some(Err(Refused::AccountClosed)) => PaymentRefused::AccountClosed,
            Some(Err(Refused::BadDeposit)) => PaymentRefused::BadAmount,
            Some(Err(Refused::LimitTooHigh)) => PaymentRefused::LimitTooHigh,
            Some(Err(Refused::UnknownGroup)) => PaymentRefused::GroupNotFound,
            Some(Err(Refused::GroupArchived)) => PaymentRefused::GroupArchived,
            Some(Err(Refused::NoLimit)) => PaymentRefused::NoLimit,
            Some(Err(Refused::DepositDiffers { earlier })) => PaymentRefused::Differs(earlier),
            Some(Err(Refused::CreditTooLow { available })) => PaymentRefused::CreditTooLow { available },
            Some(Err(Refused::Damaged)) => {
                return Err(StoreError::Damaged("a record of a payment".into()).into());
            }
            other => {
                return Err(StoreError::Unavailable(format!("a payment was answered with {other:?}")).into());
            }
        };
        Err(Error::Refused(refused))
    }

    /// Finds a payment or a refund.
    pub async fn payment(
        &self,
        account: AccountId,
        id: &PaymentId,
    ) -> Result<Deposit, Error<PaymentRefused>> {
        let found = self.store.payment(account, id).await?;
        found.ok_or(Error::Refused(PaymentRefused::PaymentNotFound))
    }

    /// Finds the group with this external id, for a payment.
    pub async fn paid_group(
        &self,
        account: AccountId,
        external_id: &str,
    ) -> Result<GroupId, Error<PaymentRefused>> {
        let found = self.store.group_with_external_id(account, external_id).await?;
        Ok(found.ok_or(Error::Refused(PaymentRefused::GroupNotFound))?.id)
    }
}

/// Payments and refunds are listed by time.
#[async_trait]
impl Listed for Deposit {
    type Id = DepositId;
    type Filter = ();
    const NAME: &'static str = "a payment";

    fn id(&self) -> DepositId {
        self.id
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        let store = &management.store;
        let Listing { after, order, .. } = listing;
        let first = match after {
            Some(after) => {
                let found = store.deposit(account, *after).await?;
                let named = found.filter(|found| found.deposited.payment.is_some());
                Some(named.ok_or(Error::Refused(UnknownCursor))?)
            }
            None => None,
        };
        // One payment more than requested is read, to see whether more payments follow.
        let limit = listing.limit.saturating_add(1);
        Ok(Page::of(store.payments(account, first.as_ref(), *order, limit).await?, listing.limit))
    }
}
