//! Restores from a backup, after which exported numbers go on above those that were exported before.

use domain::sequence::Sequence;
use key_service_ledger::{StoreError, messages, names};
use records::Name;
use shared::ids::AccountId;

use crate::store::{base::Store, layout};

impl Store {
    /// Begins new exported numbers of entries and events in every account. The store must have been restored, and must not
    /// be served yet.
    pub async fn begin_numbers_anew(&self) -> Result<(), StoreError> {
        for account in self.accounts().await? {
            let space = names::space(account.id);
            self.change(&space, |view| {
                let Some(account) = view.get::<messages::Account>(&names::account())? else { return Ok(()) };
                let mut restores: messages::Restores = view.get(&name())?.unwrap_or_default();
                restores.first_entries.push(account.entries + 1);
                restores.first_events.push(account.events + 1);
                view.put(&name(), &restores);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Epochs of the account's journal, and of its events.
    pub async fn sequences(&self, account: AccountId) -> Result<(Sequence, Sequence), StoreError> {
        let restores =
            self.get::<messages::Restores>(&names::space(account), name()).await?.unwrap_or_default();
        Ok((Sequence::new(restores.first_entries), Sequence::new(restores.first_events)))
    }
}

fn name() -> Name {
    layout::name(layout::HOUSE, *b"n")
}
