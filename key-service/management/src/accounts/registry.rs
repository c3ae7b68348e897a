//! Accounts for the operator API: opened once for each external id, found, changed and listed.

use async_trait::async_trait;
use futures_util::FutureExt;
use shared::{
    clock::random_bytes,
    ids::AccountId,
    text::is_name,
    wire::{BY_EXTERNAL_ID, MAX_LABEL_CHARS, MAX_REASON_CHARS},
};

use crate::{
    management::Management,
    nouns::listing::{Listed, Listing, MetadataFilter, Page, Paged, UnknownCursor, has, wanted},
};
use domain::{
    event::Actor,
    governed::{Made, registry::RegistryRefused},
    ledger::{AccountStatus, StandingAct},
    settings::{AccountLabels, AccountPatch, Metadata},
};
use key_service_store::store::{AccountSummary, Error, NewAccount, Order, operators};

/// Which accounts a list shows.
#[derive(Clone, Debug, Default)]
pub struct AccountFilter {
    pub name: Option<String>,
    pub external_id: Option<String>,
    pub metadata: MetadataFilter,
    pub status: Option<AccountStatus>,
}

impl Management {
    /// Opens an account without credit, once for each external id. Returns the account, and whether it is new.
    pub async fn open_account(
        &self,
        settings: AccountPatch,
        actor: Actor,
    ) -> Result<(AccountSummary, bool), Error<RegistryRefused>> {
        let refused = |reason| Err(Error::Refused(reason));
        let external_id = settings.external_id.flatten();
        // An existing account is returned even if the store is full.
        if let Some(external_id) = &external_id
            && let Some(account) = self.store.account_with_external_id(external_id).await?
        {
            return Ok((account, false));
        }
        let name = settings.name.unwrap_or_default();
        if !is_name(&name, MAX_LABEL_CHARS) {
            return refused(RegistryRefused::BadName);
        }
        self.check_room().await?;
        let act = self.act(actor);
        if !settings.metadata.fits(&Metadata::new(), act.at) {
            return refused(RegistryRefused::TooMuchMetadata);
        }
        let labels =
            AccountLabels { external_id, ..AccountLabels::default() }.with(&settings.metadata, act.at);
        let id = AccountId::new(self.later_than_the_last(act.at), random_bytes(&*self.clock));
        let new = NewAccount { id, name, created_at: act.at.to_whole_seconds() };
        Ok(match self.store.open_account(new, &labels, Some(&act)).await? {
            Made::New(id) => (self.found(id).await?, true),
            Made::Existing(id) | Made::Replayed(id) => (self.found(id).await?, false),
        })
    }

    /// Finds an account by its id, or by its external id after `external:`. The operators' account is not found.
    pub async fn find_account(&self, text: &str) -> Result<AccountSummary, Error<RegistryRefused>> {
        let not_found = Error::Refused(RegistryRefused::NotFound);
        match (text.strip_prefix(BY_EXTERNAL_ID), text.parse::<AccountId>()) {
            (Some(external_id), _) => {
                let found = self.store.account_with_external_id(external_id).await?;
                found.filter(|account| account.id != operators()).ok_or(not_found)
            }
            (None, Ok(id)) => self.found(id).await,
            (None, Err(_)) => Err(not_found),
        }
    }

    /// Changes what operators record about an account.
    pub async fn update_account(
        &self,
        account: AccountId,
        change: AccountPatch,
        actor: Actor,
    ) -> Result<AccountSummary, Error<RegistryRefused>> {
        let refused = |reason| Err(Error::Refused(reason));
        let before = self.found(account).await?;
        if change.external_id == Some(None) && before.labels.external_id.is_some() {
            return refused(RegistryRefused::ExternalIdFixed);
        }
        self.check_room().await?;
        let (external_id, act) = (change.external_id.flatten(), self.act(actor));
        self.store.update_account(account, external_id.as_deref(), &change.metadata, &act).await?;
        self.found(account).await
    }

    /// Suspends, restores or closes an account, even if the store is full.
    pub async fn change_standing(
        &self,
        account: AccountId,
        to: StandingAct,
        actor: Actor,
    ) -> Result<AccountSummary, Error<RegistryRefused>> {
        if account == operators() {
            return Err(Error::Refused(RegistryRefused::NotFound));
        }
        if let StandingAct::Suspend(reason) = &to
            && !is_name(reason, MAX_REASON_CHARS)
        {
            return Err(Error::Refused(RegistryRefused::BadReason));
        }
        self.store.change_standing(account, &to, &self.act(actor)).await?;
        self.found(account).await
    }

    async fn found(&self, id: AccountId) -> Result<AccountSummary, Error<RegistryRefused>> {
        let found = if id == operators() { None } else { self.store.account_by_id(id).await? };
        found.ok_or(Error::Refused(RegistryRefused::NotFound))
    }
}

/// Accounts are listed as if they were objects of the operators' account.
#[async_trait]
impl Listed for AccountSummary {
    type Id = AccountId;
    type Filter = AccountFilter;
    const NAME: &'static str = "an account";

    fn id(&self) -> AccountId {
        self.id
    }

    async fn page(management: &Management, _: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        let store = &management.store;
        let Listing { after, order, filter, .. } = listing;
        let is_wanted = |account: &Self| {
            has(&account.labels.metadata, &filter.metadata)
                && filter.name.as_ref().is_none_or(|name| *name == account.name)
                && filter.status.is_none_or(|status| status == account.status())
        };
        let one = match (&filter.external_id, &filter.name) {
            (Some(external_id), _) => Some(store.account_with_external_id(external_id).await?),
            (None, Some(name)) => Some(match store.account_named(name).await? {
                Some(id) => store.account_by_id(id).await?,
                None => None,
            }),
            (None, None) => None,
        };
        if let Some(found) = one {
            let found = found.into_iter();
            let items = found.filter(|account| after.is_none() && is_wanted(account)).collect();
            return Ok(Page { items, has_more: false });
        }
        let mut ids: Vec<AccountId> = store.account_names().await?.into_iter().map(|(id, _)| id).collect();
        if let Some(after) = after
            && ids.binary_search(after).is_err()
        {
            return Err(Error::Refused(UnknownCursor));
        }
        if *order == Order::Descending {
            ids.reverse();
        }
        let ids = &ids;
        let read = |after: Option<AccountId>, limit: usize| {
            async move {
                let begin =
                    after.and_then(|after| ids.iter().position(|id| *id == after)).map_or(0, |at| at + 1);
                let mut found = Vec::new();
                // Accounts whose creation is not complete are left out, so fewer accounts than ids may be found.
                for part in ids.get(begin..).unwrap_or_default().chunks(limit) {
                    found.extend(store.accounts_by_id(part.to_vec()).await?);
                    if found.len() >= limit {
                        break;
                    }
                }
                found.truncate(limit);
                Ok(found)
            }
            .boxed()
        };
        let is_filtered = !filter.metadata.is_empty() || filter.status.is_some();
        Ok(wanted(listing, is_filtered, read, is_wanted).await?)
    }
}
