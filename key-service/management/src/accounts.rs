//! Use-cases for operators: accounts and credit.

pub mod payments;
pub mod registry;

use shared::{clock::random_bytes, ids::AccountId, money::NanoUsd};

use self::payments::NewDeposit;
use crate::management::Management;
use domain::{
    event::Actor,
    usage::{Day, RATE_DAYS, SpendRate, Sums},
};
use key_service_store::store::{AccountSummary, Deposit, Error, Funds, NewAccount, StoreError};

/// Pages highlight a credit that lasts fewer days than this.
pub const SOON: i64 = 7;

/// Reason why an account was not changed or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountRefused {
    #[error("an account of this name exists already")]
    NameTaken,
    #[error("there is no account of this name")]
    NotFound,
    /// The amount is not above zero, or the credit would exceed [`NanoUsd::MAX`].
    #[error("the amount must be above zero, and the credit may not exceed {} USD", NanoUsd::MAX)]
    BadAmount,
}

impl Management {
    /// Creates an account with this credit, and writes an event if an operator creates it. After [`Error::Store`], the
    /// account may exist without the credit.
    pub async fn create_account(
        &self,
        name: &str,
        credit: NanoUsd,
        actor: Actor,
    ) -> Result<AccountId, Error<AccountRefused>> {
        if !(NanoUsd::ZERO..=NanoUsd::MAX).contains(&credit) {
            return Err(Error::Refused(AccountRefused::BadAmount));
        }
        self.check_room().await?;
        let act = self.act(actor.clone());
        let id = AccountId::new(self.later_than_the_last(act.at), random_bytes(&*self.clock));
        let account = NewAccount { id, name: name.to_owned(), created_at: act.at.to_whole_seconds() };
        // A first run creates its account without an operator, so no event is written.
        let told = matches!(actor, Actor::Operator { .. }).then_some(&act);
        if !self.store.create_account_by(account, told).await? {
            return Err(Error::Refused(AccountRefused::NameTaken));
        }
        if credit > NanoUsd::ZERO {
            let added = self.add_credit(id, NewDeposit::of(credit), actor).await;
            added.map_err(|error| error.map(|_| AccountRefused::BadAmount))?;
        }
        Ok(id)
    }

    pub async fn accounts(&self) -> Result<Vec<AccountSummary>, StoreError> {
        self.store.accounts().await
    }

    /// Finds the account with this name.
    pub async fn account(&self, name: &str) -> Result<AccountId, Error<AccountRefused>> {
        self.store.account_named(name).await?.ok_or(Error::Refused(AccountRefused::NotFound))
    }

    /// Returns the name and the money of an account; `None` if it does not exist.
    pub async fn funds(&self, account: AccountId) -> Result<Option<Funds>, StoreError> {
        self.store.funds(account).await
    }

    /// Returns the account's spend rate, and remembers it for [`Self::days_left`].
    pub async fn spend_rate(&self, account: AccountId) -> Result<SpendRate, StoreError> {
        let (rate, _) = self.rate_and_sum(account).await?;
        self.recent_spend.remember(account, self.today(), rate);
        Ok(rate)
    }

    /// Reads the account's last [`RATE_DAYS`] days. Returns the spend rate and the sums.
    pub(crate) async fn rate_and_sum(&self, account: AccountId) -> Result<(SpendRate, Sums), StoreError> {
        let today = self.today();
        let first = today.plus(1 - RATE_DAYS);
        let mut days = self.spend(account, first..=today).await?;
        let of_day = |day: Day| {
            let models = days.remove(&day).unwrap_or_default();
            models.into_values().fold(Sums::default(), Sums::plus)
        };
        let sums: Vec<Sums> = (0..RATE_DAYS).map(|day| first.plus(day)).map(of_day).collect();
        let daily: Vec<NanoUsd> = sums.iter().map(|sums| sums.charged).collect();
        let age = today.number() - Day::of(account.created_at()).number() + 1;
        Ok((SpendRate::of(&daily, age), sums.into_iter().fold(Sums::default(), Sums::plus)))
    }

    /// Returns how many whole days an account's credit will last at the last known rate; `None` if this process has not
    /// calculated the rate since yesterday, or if nothing was spent. Reads nothing from the store.
    pub fn days_left(&self, account: AccountId, credit: NanoUsd) -> Option<i64> {
        self.recent_spend.of(account, self.today())?.days_left(credit)
    }

    /// Lists the latest changes of the account's credit by deposits, payments and refunds, newest first.
    pub async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError> {
        self.store.deposits(account, limit).await
    }
}
