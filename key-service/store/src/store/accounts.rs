//! Accounts. They are found by id or by name.
//!
//! The record of a name is written first. This record decides which account gets the name. The first of the account's
//! own records is its profile. Until the profile exists, the account cannot be found. An external id is claimed before
//! the name ([`claims`]).

pub(crate) mod claims;
mod standing;

use std::future::ready;

use domain::{
    event::{Act, EventKind},
    governed::registry::RegistryRefused,
    ledger::Account,
    settings::AccountLabels,
};
use futures_util::{StreamExt, TryStreamExt, future::try_join_all, stream};
use key_service_ledger::{
    Change, StoreError, names,
    stored::{AccountLabelsRecord, AccountName, AccountProfile, AccountRecord, IdList},
};
use records::Space;
use shared::ids::AccountId;

use crate::{
    data::{AccountSummary, Funds, NewAccount},
    error::Error,
    store::{
        base::{Store, value},
        books::refused,
        layout,
    },
};

/// The kind of spaces in which account names are.
const NAMES: &str = "accounts";
/// Number of accounts that are read at the same time, each in a round trip of its own.
const READ_AT_ONCE: usize = 64;

impl Store {
    /// Creates an account without credit. Returns `false` if the name is taken.
    pub async fn create_account(&self, account: NewAccount) -> Result<bool, StoreError> {
        self.create_account_by(account, None).await
    }

    /// Like [`Self::create_account`], but also writes an event if there is an act.
    pub async fn create_account_by(
        &self,
        account: NewAccount,
        act: Option<&Act>,
    ) -> Result<bool, StoreError> {
        let id = account.id;
        match self.open_account(account, &AccountLabels::default(), act).await {
            Ok(_) => Ok(true),
            // A caller that lost the answer repeats the call.
            Err(Error::Refused(refused)) => Ok(refused == RegistryRefused::NameTaken(id)),
            Err(Error::Store(cause)) => Err(cause),
        }
    }

    pub async fn accounts(&self) -> Result<Vec<AccountSummary>, StoreError> {
        let ids: Vec<AccountId> = self.account_names().await?.into_iter().map(|(id, _)| id).collect();
        self.accounts_by_id(ids).await
    }

    /// Finds the accounts with these ids, in the same order. Unknown and incomplete ones are left out.
    pub async fn accounts_by_id(&self, ids: Vec<AccountId>) -> Result<Vec<AccountSummary>, StoreError> {
        let summaries = stream::iter(ids.into_iter().map(|id| self.account_by_id(id))).buffered(READ_AT_ONCE);
        summaries.try_filter_map(|summary| ready(Ok(summary))).try_collect().await
    }

    /// Lists the ids and names of all accounts, oldest first. Some accounts may be incomplete.
    pub async fn account_names(&self) -> Result<Vec<(AccountId, String)>, StoreError> {
        let parts = layout::parts(NAMES).map(|part| self.accounts_named_in(part));
        let mut named = try_join_all(parts).await?.concat();
        named.sort_unstable();
        named.dedup_by_key(|(id, _)| *id);
        Ok(named)
    }

    /// Finds an account by name, through an index.
    pub async fn account_named(&self, name: &str) -> Result<Option<AccountId>, StoreError> {
        let (space, of_name) = layout::account_name(name);
        let Some(owner) = self.read().get::<AccountName>(&space, of_name).await? else { return Ok(None) };
        let id = owner.account;
        let profile: Option<AccountProfile> =
            self.read().get(&layout::space(id), layout::account_profile()).await?;
        Ok(profile.filter(|profile| profile.name == name).map(|_| id))
    }

    /// Returns an account's name, money, and numbers of keys and groups; `None` for an unknown account.
    pub async fn funds(&self, account: AccountId) -> Result<Option<Funds>, StoreError> {
        let today = refused::of_today(self.clock.now());
        let asked = vec![
            names::account().into(),
            layout::account_profile().into(),
            layout::account_labels().into(),
            today.into(),
        ];
        let found = self.read().records_of(&layout::space(account), asked).await?;
        let [Some(money), Some(profile), labels, refused] = &found[..] else { return Ok(None) };
        let (AccountRecord { money, .. }, AccountProfile { name, keys, groups, .. }) =
            (value(money)?, value(profile)?);
        let labels = labels.as_ref().map(value::<AccountLabelsRecord>).transpose()?;
        Ok(Some(Funds {
            name,
            credit: money.credit,
            held: money.held,
            keys,
            groups,
            has_refused: refused.is_some(),
            standing: money.standing,
            suspended_reason: labels.and_then(|labels| labels.suspended_reason),
        }))
    }

    /// Reads the record of the account's money, with numbers that only the store needs; `None` for an unknown account.
    pub(crate) async fn account_money(
        &self,
        account: AccountId,
    ) -> Result<Option<AccountRecord>, StoreError> {
        self.read().get(&layout::space(account), names::account()).await
    }

    /// Creates the account for a name, unless it already exists. Returns whether it did.
    pub(crate) async fn complete_account(
        &self,
        id: AccountId,
        profile: &AccountProfile,
        labels: &AccountLabels,
        act: Option<&Act>,
    ) -> Result<bool, StoreError> {
        let of_profile = layout::account_profile();
        let decide = |change: &mut Change<'_>| {
            change.presume_absent(&of_profile);
            match change.get::<AccountProfile>(&of_profile)? {
                Some(made) if made.name == profile.name => return Ok(false),
                Some(_) => return Err(StoreError::Conflict(format!("{id} has another name"))),
                None => {}
            }
            if change.account()?.is_none() {
                change.set_account(Account::default());
            }
            change.put(&of_profile, profile.clone());
            if *labels != AccountLabels::default() {
                change.put(&layout::account_labels(), claims::write_labels(labels));
            }
            if let Some(act) = act {
                let made = EventKind::AccountCreated { name: profile.name.clone() };
                change.event(act.event(0, None, None, made));
            }
            Ok(true)
        };
        self.lanes.change(id, decide).await
    }

    /// Lists the accounts whose names are in a space. Some accounts may be incomplete, and some may be listed twice.
    async fn accounts_named_in(&self, space: Space) -> Result<Vec<(AccountId, String)>, StoreError> {
        let records = self.all_of_set(&space, layout::ACCOUNT_NAMES).await?;
        let named = records.into_iter().map(|(name, record)| {
            let name = String::from_utf8(name);
            let name = name.map_err(|_| StoreError::Damaged("the name of an account".into()))?;
            Ok::<_, StoreError>((value::<AccountName>(&record)?.account, name))
        });
        named.collect()
    }

    /// Finds an account as of one moment; `None` for an unknown or incomplete account.
    pub async fn account_by_id(&self, id: AccountId) -> Result<Option<AccountSummary>, StoreError> {
        let asked =
            vec![names::account().into(), layout::account_profile().into(), layout::account_labels().into()];
        let found = self.read().records_of(&layout::space(id), asked).await?;
        let [Some(money), Some(profile), labels] = &found[..] else { return Ok(None) };
        let (AccountRecord { money, .. }, AccountProfile { name, created_at, keys, groups }) =
            (value(money)?, value(profile)?);
        let labels = labels.as_ref().map(value::<AccountLabelsRecord>).transpose()?;
        let labels = claims::read_labels(labels.unwrap_or_default());
        let Account { credit, held, standing, .. } = money;
        Ok(Some(AccountSummary { id, name, credit, held, keys, groups, labels, standing, created_at }))
    }
}

/// Inserts an id into a sorted list.
pub(crate) fn insert_id<T: Ord>(list: &mut IdList<T>, id: T) {
    if let Err(place) = list.ids.binary_search(&id) {
        list.ids.insert(place, id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::ledger::histories::{START, account};
    use shared::clock::System;

    use super::*;
    use crate::store::base::StoreRetention;
    use key_service_ledger::{EVENTS_KEPT, EventBounds, view::View};
    use records::maps::Maps;

    #[tokio::test]
    async fn an_account_that_was_left_with_its_name_alone_is_made_by_the_next_call() {
        let kept = StoreRetention::all(EventBounds::with_life(EVENTS_KEPT));
        let store = Store::new(Arc::new(Maps::default()), Arc::new(System), kept);
        let new = |n| NewAccount { id: account(n), name: "Acme".into(), created_at: START };
        let (space, name) = layout::account_name("Acme");
        let left = AccountName { account: account(1), created_at: START, has_external_id: false };
        let put = |view: &mut View| {
            view.put(&name, left);
            Ok(())
        };
        store.change(&space, put).await.unwrap();
        assert_eq!(store.accounts().await, Ok(vec![]));
        assert_eq!(store.account_named("Acme").await, Ok(None));
        assert_eq!(store.create_account(new(2)).await, Ok(false));
        assert_eq!(store.account_named("Acme").await, Ok(Some(account(1))));
        assert_eq!(store.accounts().await.unwrap()[0].created_at, START);
        assert_eq!(store.create_account(new(1)).await, Ok(true));
        let renamed = NewAccount { name: "Other".into(), ..new(1) };
        assert!(matches!(store.create_account(renamed).await, Err(StoreError::Conflict(_))));
        assert_eq!(store.account_named("Other").await, Ok(None));
        assert_eq!(store.accounts().await.unwrap().len(), 1);
    }
}
