//! Audits the books of all accounts that any index names.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, btree_map};

use domain::audit::Audit;
use key_service_audit::Books;
use key_service_ledger::{
    StoreError, house, names,
    stored::{AccountProfile, House, ManagementKeyOwner},
    view::View,
};
use records::Order;
use shared::ids::AccountId;

use crate::store::{
    base::{Store, value},
    layout,
};

impl Store {
    /// Audits the account's books while spending continues; `None` if the account has no records. Reads the whole
    /// journal in bounded memory.
    pub async fn audit(&self, account: AccountId) -> Result<Option<Audit>, StoreError> {
        let (records, clock) = (&*self.records, &*self.clock);
        Books { records, clock, journal_entries: self.kept.journal_entries }.audit(account).await
    }

    /// Lists the ids and names of the accounts to audit, ordered by id: all that have a name or are in any other index
    /// of accounts.
    pub async fn audited_accounts(&self) -> Result<Vec<(AccountId, String)>, StoreError> {
        let mut accounts: BTreeMap<_, _> = self.account_names().await?.into_iter().collect();
        let mut others = Vec::new();
        for (list, table) in [("holders", layout::HOLDERS), ("webhooks", layout::WEBHOOK_ACCOUNTS)] {
            for part in layout::parts(list) {
                let listed = self.all_of_set(&part, table).await?;
                others.extend(listed.iter().filter_map(|(id, _)| AccountId::from_slice(id)));
            }
        }
        for part in layout::parts("management-keys") {
            for (_, owner) in self.all_of_set(&part, layout::MANAGEMENT_KEY_OWNERS).await? {
                let owner: ManagementKeyOwner = value(&owner)?;
                others.push(owner.account);
            }
        }
        for id in others {
            if let btree_map::Entry::Vacant(unnamed) = accounts.entry(id) {
                let profile = layout::account_profile();
                let profile: Option<AccountProfile> = self.read().get(&layout::space(id), profile).await?;
                unnamed.insert(profile.map_or_else(|| id.to_string(), |profile| profile.name));
            }
        }
        Ok(accounts.into_iter().collect())
    }

    /// Records each account's first journal entry, after a copy from a store that drops old entries.
    pub async fn note_first_entries(&self) -> Result<(), StoreError> {
        for (account, _) in self.audited_accounts().await? {
            let space = names::space(account);
            let first = self.read().values(&space, names::JOURNAL, 0..=u64::MAX, Order::Ascending, 1).await?;
            let Some(first) = first.first().map(|(number, _)| *number).filter(|number| *number > 1) else {
                continue;
            };
            let note = |view: &mut View| {
                let house = view.get::<House>(&names::house())?;
                let house = house.unwrap_or_else(|| house::begin(account));
                view.put(&names::house(), House { journal: first, ..house });
                Ok(())
            };
            self.change(&space, note).await?;
        }
        Ok(())
    }
}
