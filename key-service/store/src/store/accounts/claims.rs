//! Claims of names and external ids, and what operators record about an account.
//!
//! An external id is claimed first, then the name, and then the account is written. Whoever repeats the call finishes
//! what a dead caller began. The claim of an external id is stale, and may be taken over, once the account that made it
//! has another external id.

use domain::{
    event::{Act, EventKind},
    governed::{Made, registry::RegistryRefused},
    settings::{AccountLabels, MetadataPatch},
};
use key_service_ledger::{
    Change, StoreError,
    stored::{AccountClaim, AccountLabelsRecord, AccountName, AccountProfile},
    view::View,
};
use shared::ids::AccountId;

use crate::{
    data::{AccountSummary, NewAccount},
    error::Error,
    store::{base::Store, layout},
};

impl Store {
    /// Creates an account without credit, with an event if there is an act. If another account has the external id or
    /// the name, nothing is created.
    pub async fn open_account(
        &self,
        account: NewAccount,
        labels: &AccountLabels,
        act: Option<&Act>,
    ) -> Result<Made<AccountId>, Error<RegistryRefused>> {
        if let Some(external_id) = &labels.external_id {
            return self.open_claimed_account(external_id, account, labels, act).await;
        }
        let NewAccount { id, name, created_at } = account;
        let mine = AccountName { account: id, created_at, has_external_id: false };
        let owner = self.claim_name(&name, mine).await?;
        // Another caller may have died between writing the name and the account.
        let is_new = self.complete_named(&name, owner, labels, act).await?;
        if is_new && owner.account == id {
            Ok(Made::New(id))
        } else {
            Err(Error::Refused(RegistryRefused::NameTaken(owner.account)))
        }
    }

    /// Creates an account with an external id. If several calls have the same external id, the first of them decides
    /// the account's name.
    async fn open_claimed_account(
        &self,
        external_id: &str,
        NewAccount { id, name, created_at }: NewAccount,
        labels: &AccountLabels,
        act: Option<&Act>,
    ) -> Result<Made<AccountId>, Error<RegistryRefused>> {
        let mine = AccountClaim { account: id, created_at, name: name.clone() };
        loop {
            let claim = self.claim_external_id(external_id, &mine).await?;
            let account = claim.account;
            if self.account_by_id(account).await?.is_some() {
                // The call that gave the external id to an existing account may have died.
                self.label_account(account, Some(external_id), &MetadataPatch::default(), act).await?;
                return Ok(Made::Existing(account));
            }
            let named = AccountName { account, created_at: claim.created_at, has_external_id: true };
            let owner = self.claim_name(&claim.name, named).await?;
            if owner.account == account {
                let profile =
                    AccountProfile { name: claim.name, created_at: claim.created_at, keys: 0, groups: 0 };
                let is_new = self.complete_account(account, &profile, labels, act).await?;
                return Ok(if is_new { Made::New(account) } else { Made::Existing(account) });
            }
            self.complete_named(&claim.name, owner, &AccountLabels::default(), act).await?;
            if claim.name == name {
                return Err(Error::Refused(RegistryRefused::NameTaken(owner.account)));
            }
            self.rename_claim(external_id, &claim, &name).await?;
        }
    }

    /// Creates the account that has claimed this name, unless it exists. If it has an external id, only a call with
    /// that id can complete it. Returns whether it created the account.
    async fn complete_named(
        &self,
        name: &str,
        owner: AccountName,
        labels: &AccountLabels,
        act: Option<&Act>,
    ) -> Result<bool, StoreError> {
        let AccountName { account, created_at, has_external_id } = owner;
        if has_external_id {
            return Ok(false);
        }
        let profile = AccountProfile { name: name.to_owned(), created_at, keys: 0, groups: 0 };
        self.complete_account(account, &profile, labels, act).await
    }

    /// Finds an account by the operator's own id, through an index.
    pub async fn account_with_external_id(
        &self,
        external_id: &str,
    ) -> Result<Option<AccountSummary>, StoreError> {
        let (space, name) = layout::account_external_id(external_id);
        let Some(claim) = self.read().get::<AccountClaim>(&space, name).await? else { return Ok(None) };
        let found = self.account_by_id(claim.account).await?;
        Ok(found.filter(|account| account.labels.external_id.as_deref() == Some(external_id)))
    }

    /// Changes what operators record about an account. An account keeps its first external id.
    pub async fn update_account(
        &self,
        account: AccountId,
        external_id: Option<&str>,
        metadata: &MetadataPatch,
        act: &Act,
    ) -> Result<(), Error<RegistryRefused>> {
        let found = self.account_by_id(account).await?.ok_or(Error::Refused(RegistryRefused::NotFound))?;
        if let Some(external_id) = external_id {
            if found.labels.external_id.is_some_and(|fixed| fixed != external_id) {
                return Err(Error::Refused(RegistryRefused::ExternalIdFixed));
            }
            // This is checked before the id is claimed, because a refused change must claim nothing.
            if !metadata.fits(&found.labels.metadata, act.at) {
                return Err(Error::Refused(RegistryRefused::TooMuchMetadata));
            }
            let created_at = act.at.to_whole_seconds();
            let mine = AccountClaim { account, created_at, name: found.name };
            let claim = self.claim_external_id(external_id, &mine).await?;
            if claim.account != account {
                return Err(Error::Refused(RegistryRefused::ExternalIdTaken(claim.account)));
            }
        }
        self.label_account(account, external_id, metadata, Some(act)).await
    }

    /// Writes the labels of an existing account, whose external id is claimed.
    async fn label_account(
        &self,
        account: AccountId,
        external_id: Option<&str>,
        metadata: &MetadataPatch,
        act: Option<&Act>,
    ) -> Result<(), Error<RegistryRefused>> {
        let now = act.map_or_else(|| self.clock.now(), |act| act.at);
        let decide = |change: &mut Change<'_>| {
            let name = layout::account_labels();
            let has_profile = change.has(&layout::account_profile());
            let before = read_labels(change.get::<AccountLabelsRecord>(&name)?.unwrap_or_default());
            if !has_profile {
                return Err(Error::Refused(RegistryRefused::NotFound));
            }
            if !metadata.fits(&before.metadata, now) {
                return Err(Error::Refused(RegistryRefused::TooMuchMetadata));
            }
            let mut after = before.clone().with(metadata, now);
            if let Some(external_id) = external_id {
                if before.external_id.as_ref().is_some_and(|fixed| fixed != external_id) {
                    return Err(Error::Refused(RegistryRefused::ExternalIdFixed));
                }
                after.external_id = Some(external_id.to_owned());
            }
            let changes = after.changes_since(&before);
            if !changes.is_empty() {
                change.put(&name, write_labels(&after));
                if let Some(act) = act {
                    change.event(act.event(0, None, None, EventKind::AccountUpdated { changes }));
                }
            }
            Ok(())
        };
        self.lanes.change(account, decide).await
    }

    /// Claims an external id. Returns the claim that is in force: this claim or an earlier one.
    async fn claim_external_id(
        &self,
        external_id: &str,
        mine: &AccountClaim,
    ) -> Result<AccountClaim, StoreError> {
        let (space, name) = layout::account_external_id(external_id);
        let mut stale = None;
        loop {
            let decide = |view: &mut View| {
                view.presume_absent(&name);
                match view.get::<AccountClaim>(&name)? {
                    Some(taken) if stale.as_ref() != Some(&taken) => Ok(taken),
                    Some(_) | None => {
                        view.put(&name, mine.clone());
                        Ok(mine.clone())
                    }
                }
            };
            let holds = self.change(&space, decide).await?;
            if holds.account == mine.account {
                return Ok(holds);
            }
            let labels = self.labels_of(holds.account).await?;
            let has_another = |labels: AccountLabels| labels.external_id.is_some_and(|id| id != external_id);
            if !labels.is_some_and(has_another) {
                return Ok(holds);
            }
            stale = Some(holds);
        }
    }

    /// Replaces the name of a claim, unless the claim has changed.
    async fn rename_claim(
        &self,
        external_id: &str,
        claim: &AccountClaim,
        name: &str,
    ) -> Result<(), StoreError> {
        let (space, of_claim) = layout::account_external_id(external_id);
        let rename = |view: &mut View| {
            if view.get::<AccountClaim>(&of_claim)?.as_ref() == Some(claim) {
                view.put(&of_claim, AccountClaim { name: name.to_owned(), ..claim.clone() });
            }
            Ok(())
        };
        self.change(&space, rename).await
    }

    /// Claims a name. Returns the record that is in force: `mine` or an earlier one.
    async fn claim_name(&self, name: &str, mine: AccountName) -> Result<AccountName, StoreError> {
        let (space, of_name) = layout::account_name(name);
        let decide = |view: &mut View| {
            view.presume_absent(&of_name);
            if let Some(taken) = view.get::<AccountName>(&of_name)? {
                return Ok(taken);
            }
            view.put(&of_name, mine);
            Ok(mine)
        };
        self.change(&space, decide).await
    }

    /// Reads what operators record about an account; `None` for an unknown or incomplete account.
    async fn labels_of(&self, account: AccountId) -> Result<Option<AccountLabels>, StoreError> {
        Ok(self.account_by_id(account).await?.map(|account| account.labels))
    }
}

pub(crate) fn write_labels(labels: &AccountLabels) -> AccountLabelsRecord {
    let AccountLabels { external_id, metadata, suspended_reason } = labels.clone();
    AccountLabelsRecord { external_id, metadata, suspended_reason }
}

pub(crate) fn read_labels(record: AccountLabelsRecord) -> AccountLabels {
    let AccountLabelsRecord { external_id, metadata, suspended_reason } = record;
    AccountLabels { external_id, metadata, suspended_reason }
}
