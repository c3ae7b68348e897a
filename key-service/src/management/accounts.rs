//! Use-cases of the operator: accounts, credit, and management keys.

use std::time::Duration;

use shared::{
    clock::random_bytes,
    ids::{AccountId, DepositId, ManagementKeyId},
    key::{self, Class},
    money::NanoUsd,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
};

use super::{Error, IDEMPOTENCY_TTL, Management};
use crate::store::{AccountSummary, Deposit, Funds, ManagementKey, NewAccount, NewManagementKey, StoreError};
use domain::{
    event::Actor,
    ledger::{Command, Outcome, Refused},
};

/// Number of management keys per account, revoked keys included: a page of keys stays a page, and a key a month lasts
/// for eight years.
pub const MAX_MANAGEMENT_KEYS: u64 = 100;

/// Reason why an account was not changed or found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountRefused {
    /// The name is taken.
    #[error("there is an account of this name already")]
    NameTaken,
    /// No account has this name.
    #[error("there is no account of this name")]
    NotFound,
    /// No management key has this id.
    #[error("there is no such management key")]
    ManagementKeyNotFound,
    /// The account is at its bound of management keys.
    #[error(
        "the account has {MAX_MANAGEMENT_KEYS} management keys, revoked ones included, and may not have more"
    )]
    TooManyManagementKeys,
    /// The store is nearly full.
    #[error("the store is nearly full, and keeps the rest for requests")]
    StoreFull,
    /// The amount is not above zero, or the credit would pass [`NanoUsd::MAX`].
    #[error("the amount must be above zero, and the credit stay within {} USD", NanoUsd::MAX)]
    BadAmount,
}

/// Answer to a form that makes a management key.
#[derive(Debug)]
pub enum CreatedManagementKey {
    /// The key was made. The plaintext cannot be recovered later.
    New(SecretString),
    /// An earlier attempt made the key, whose plaintext is gone.
    Replayed,
    /// The form is none of ours.
    Stale,
}

/// Tolerated difference between the clocks of two key-services: one may show a form, and the other receive the form.
const CLOCKS_APART: Duration = Duration::from_mins(1);

impl Management {
    /// Creates an account with this much credit. After [`Error::Store`] the account may exist without the credit.
    pub async fn create_account(
        &self,
        name: &str,
        credit: NanoUsd,
        actor: Actor,
    ) -> Result<AccountId, Error<AccountRefused>> {
        if !(NanoUsd::ZERO..=NanoUsd::MAX).contains(&credit) {
            return Err(Error::Refused(AccountRefused::BadAmount));
        }
        let now = self.clock.now();
        let id = AccountId::new(self.later_than_the_last(now), random_bytes(&*self.clock));
        let account = NewAccount { id, name: name.to_owned(), created_at: now.to_whole_seconds() };
        if !self.store.create_account(account).await? {
            return Err(Error::Refused(AccountRefused::NameTaken));
        }
        if credit > NanoUsd::ZERO {
            self.deposit(id, credit, actor).await?;
        }
        Ok(id)
    }

    /// All accounts, oldest first.
    pub async fn accounts(&self) -> Result<Vec<AccountSummary>, StoreError> {
        self.store.accounts().await
    }

    /// The account of this name.
    pub async fn account(&self, name: &str) -> Result<AccountId, Error<AccountRefused>> {
        self.store.account_named(name).await?.ok_or(Error::Refused(AccountRefused::NotFound))
    }

    /// The name and the money of an account. `None` where there is none.
    pub async fn funds(&self, account: AccountId) -> Result<Option<Funds>, StoreError> {
        self.store.funds(account).await
    }

    /// The account's latest deposits, newest first.
    pub async fn deposits(&self, account: AccountId, limit: usize) -> Result<Vec<Deposit>, StoreError> {
        self.store.deposits(account, limit).await
    }

    /// Adds credit to an account, and returns the new credit.
    pub async fn deposit(
        &self,
        account: AccountId,
        amount: NanoUsd,
        actor: Actor,
    ) -> Result<NanoUsd, Error<AccountRefused>> {
        let now = self.clock.now();
        let id = DepositId::new(now, random_bytes(&*self.clock));
        let outcomes = self.store.execute(account, vec![Command::Deposit { id, amount, actor }], now).await?;
        match outcomes.into_iter().next() {
            Some(Ok(Outcome::Deposited(credit))) => Ok(credit),
            Some(Err(Refused::BadDeposit)) => Err(Error::Refused(AccountRefused::BadAmount)),
            Some(Err(Refused::UnknownKey)) => Err(Error::Refused(AccountRefused::NotFound)),
            other => Err(StoreError::Unavailable(format!("a deposit was answered with {other:?}")).into()),
        }
    }

    /// Creates a management key, and returns the plaintext, which cannot be recovered later.
    pub async fn create_management_key(
        &self,
        account: AccountId,
        name: &str,
        actor: Actor,
    ) -> Result<SecretString, Error<AccountRefused>> {
        let now = self.later_than_the_last(self.clock.now());
        let id = ManagementKeyId::new(now, random_bytes(&*self.clock));
        self.make_management_key(account, id, name, actor).await
    }

    /// Makes the mark of a form for a new management key, so that sending the form twice makes a single key: 64
    /// hexadecimal digits, of which the first twelve encode the time of showing.
    pub fn management_key_attempt(&self) -> String {
        let shown = self.clock.now().millis();
        format!("{shown:012x}{}", hex::encode(random_bytes::<26>(&*self.clock)))
    }

    /// Makes a management key, once per attempt and name.
    pub async fn create_management_key_once(
        &self,
        account: AccountId,
        name: &str,
        attempt: &str,
        actor: Actor,
    ) -> Result<CreatedManagementKey, Error<AccountRefused>> {
        let Some(shown) = self.shown_at(attempt) else { return Ok(CreatedManagementKey::Stale) };
        // The id follows from the attempt, so no one can choose an id.
        let of = format!("management key\0{account}\0{attempt}\0{name}");
        let digest = *self.credentials.keyed_digest(of).as_bytes();
        let id = |at| ManagementKeyId::new(at, std::array::from_fn(|byte| digest[byte]));
        let keys = self.store.management_keys(account).await?;
        if keys.iter().any(|key| key.id == id(key.id.created_at())) {
            return Ok(CreatedManagementKey::Replayed);
        }
        self.make_management_key(account, id(shown), name, actor).await.map(CreatedManagementKey::New)
    }

    /// When the form of an attempt was shown: now, where the attempt does not say so. `None` for what is no attempt.
    fn shown_at(&self, attempt: &str) -> Option<Timestamp> {
        let is_attempt = attempt.len() == 64 && attempt.bytes().all(|digit| digit.is_ascii_hexdigit());
        let shown = i64::from_str_radix(attempt.get(..12).filter(|_| is_attempt)?, 16).ok()?;
        let shown = Timestamp::from_millis(shown);
        let now = self.clock.now();
        let is_recent = shown <= now.plus(CLOCKS_APART) && now < shown.plus(IDEMPOTENCY_TTL);
        Some(if is_recent { shown } else { now })
    }

    async fn make_management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
        name: &str,
        actor: Actor,
    ) -> Result<SecretString, Error<AccountRefused>> {
        if self.store.is_nearly_full().await? {
            return Err(Error::Refused(AccountRefused::StoreFull));
        }
        let act = self.act(actor);
        let (plaintext, digest) = self.credentials.mint(Class::Management, random_bytes(&*self.clock));
        let key = ManagementKey {
            id,
            name: name.to_owned(),
            hint: key::hint(plaintext.expose_secret()),
            created_at: act.at.to_whole_seconds(),
            revoked_at: None,
        };
        let new = NewManagementKey { account, key, digest, most: MAX_MANAGEMENT_KEYS };
        if !self.store.create_management_key(new, &act).await? {
            return Err(Error::Refused(AccountRefused::TooManyManagementKeys));
        }
        Ok(plaintext)
    }

    /// The account's management keys, oldest first.
    pub async fn management_keys(&self, account: AccountId) -> Result<Vec<ManagementKey>, StoreError> {
        let _permit = self.read_permit(account).await?;
        self.store.management_keys(account).await
    }

    /// Finds a management key of the account.
    pub async fn management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> Result<ManagementKey, Error<AccountRefused>> {
        let found = self.store.management_key(account, id).await?;
        found.ok_or(Error::Refused(AccountRefused::ManagementKeyNotFound))
    }

    /// Revokes a management key of any account for good; again is the same.
    pub async fn revoke_management_key(
        &self,
        id: ManagementKeyId,
        actor: Actor,
    ) -> Result<ManagementKey, Error<AccountRefused>> {
        let revoked = self.store.revoke_management_key(id, &self.act(actor)).await?;
        revoked.ok_or(Error::Refused(AccountRefused::ManagementKeyNotFound))
    }
}

#[cfg(test)]
mod tests {
    use CreatedManagementKey::{New, Replayed, Stale};

    use super::*;
    use crate::management::testing::Office;

    #[tokio::test]
    async fn a_form_that_is_sent_twice_makes_one_management_key() {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let (other, _) = office.account("other").await;
        let desk = &office.management;
        let attempt = desk.management_key_attempt();
        let again = async |account, name: &str, attempt: &str| {
            desk.create_management_key_once(account, name, attempt, Actor::System).await.unwrap()
        };
        assert!(matches!(again(account, "Deployment", &attempt).await, New(_)));
        assert!(matches!(again(account, "Deployment", &attempt).await, Replayed));
        assert_eq!(desk.management_keys(account).await.unwrap().len(), 2, "with the first one");
        assert!(matches!(again(account, "Another name", &attempt).await, New(_)));
        assert!(matches!(again(other, "Deployment", &attempt).await, New(_)));
        assert!(matches!(again(account, "x", &desk.management_key_attempt()).await, New(_)));
        for old in ["f".repeat(64), "0".repeat(64)] {
            assert!(matches!(again(account, "Deployment", &old).await, New(_)));
            office.clock.set("2026-11-20T03:00:00Z");
            assert!(matches!(again(account, "Deployment", &old).await, Replayed));
        }
        for made_up in ["", "x", &attempt[1..], &format!("{attempt}0"), &"g".repeat(64)] {
            assert!(matches!(again(account, "Deployment", made_up).await, Stale), "{made_up}");
        }
    }
}
