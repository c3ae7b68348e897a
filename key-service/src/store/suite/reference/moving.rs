//! Imports into the reference store.

use async_trait::async_trait;
use shared::rpc::Principal;

use super::{Reference, book::Shelf};
use crate::store::{Credential, Imports, StoreError};
use domain::{
    event::Act,
    moving::{Import, ImportRefused, Owner, Plan, Present},
};

#[async_trait]
impl Imports for Reference {
    async fn import(
        &self,
        import: Import,
        is_dry_run: bool,
        act: &Act,
    ) -> Result<Result<Plan, ImportRefused>, StoreError> {
        self.books()?.import(&import, is_dry_run, act)
    }
}

impl Shelf {
    /// Plans an import and, unless it is a dry run, makes all of it.
    fn import(
        &mut self,
        import: &Import,
        is_dry_run: bool,
        act: &Act,
    ) -> Result<Result<Plan, ImportRefused>, StoreError> {
        let owner = |digest| match self.credentials.get(digest).map(|found| found.owner) {
            None => Owner::None,
            Some(Principal::ApiKey(account, _)) if account == import.account => Owner::Key,
            Some(Principal::ApiKey(..) | Principal::ManagementKey(..)) => Owner::Other,
        };
        let owners = import.keys.iter().map(|imported| owner(&imported.digest)).collect();
        let book = self.account(import.account)?;
        let named = book.groups.values().filter_map(|group| {
            Some((group.external_id.clone()?, (group.id, book.takes_key(Some(group.id)))))
        });
        let (keys, groups) = (book.keys.len() as u64, book.groups.len() as u64);
        let plan = match import.plan(&Present { keys, groups, owners, named: named.collect() }) {
            Ok(plan) if !is_dry_run => plan,
            decided => return Ok(decided),
        };
        for group in &plan.groups {
            book.openings.1.insert(group.id, group.spend.budget.used);
            book.groups.insert(group.id, group.clone());
        }
        for (key, _) in &plan.keys {
            book.openings.0.insert(key.id, key.spend.budget.used);
            book.keys.insert(key.id, key.clone());
        }
        for (n, ((key, group), kind)) in (0..).zip(plan.events(act.at)) {
            book.tell(act.event(n, key, group, kind));
        }
        let credentials = plan
            .keys
            .iter()
            .map(|(key, digest)| (*digest, Credential::first(Principal::ApiKey(import.account, key.id))));
        self.credentials.extend(credentials);
        Ok(Ok(plan))
    }
}
