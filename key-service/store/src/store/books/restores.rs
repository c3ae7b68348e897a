//! Restores from a backup, after which exported numbers go on above those that were exported before.

use domain::sequence::{Restored, Sequence, next_epoch};
use key_service_ledger::{StoreError, messages, names};
use records::Name;
use shared::ids::AccountId;

use crate::store::{base::Store, layout};

impl Store {
    /// Begins new exported numbers of entries and events in every account. The store must have been restored, and must not
    /// be served yet. `replaced` is the store that was there before, if it can be read.
    pub async fn begin_numbers_anew(&self, replaced: Option<&Self>) -> Result<(), StoreError> {
        let now = self.clock.now();
        for account in self.accounts().await? {
            let space = names::space(account.id);
            let of_replaced: Option<messages::Restores> = match replaced {
                // A damaged record does not hold up the restore that it calls for.
                Some(replaced) => replaced.read().get(&space, name()).await.unwrap_or_default(),
                None => None,
            };
            let of_replaced = of_replaced.as_ref().and_then(last_epoch);
            self.change(&space, |view| {
                let Some(account) = view.get::<messages::Account>(&names::account())? else { return Ok(()) };
                let mut restores: messages::Restores = view.get(&name())?.unwrap_or_default();
                let epoch = next_epoch(last_epoch(&restores).into_iter().chain(of_replaced), now);
                restores.first_entries.push(account.entries + 1);
                restores.first_events.push(account.events + 1);
                restores.epochs.push(epoch);
                view.put(&name(), &restores);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Epochs of the account's journal, and of its events.
    pub async fn sequences(&self, account: AccountId) -> Result<(Sequence, Sequence), StoreError> {
        let messages::Restores { first_entries, first_events, epochs } =
            self.read().get(&names::space(account), name()).await?.unwrap_or_default();
        let sequence = |firsts: Vec<u64>| {
            let restored = |(first, epoch): (u64, &u64)| Restored { first, epoch: *epoch };
            Sequence::new(firsts.into_iter().zip(&epochs).map(restored).collect())
        };
        Ok((sequence(first_entries), sequence(first_events)))
    }
}

fn last_epoch(restores: &messages::Restores) -> Option<u64> {
    restores.epochs.last().copied()
}

fn name() -> Name {
    layout::name(layout::HOUSE, *b"n")
}

#[cfg(test)]
mod tests {
    use domain::ledger::histories::START;
    use shared::ids::GenerationId;

    use super::*;
    use crate::{
        store::Ledger as _,
        suite::{capture, hold, in_maps, make_key, open_account_with},
    };

    /// A backup of an account with two entries, which was never restored.
    async fn backup() -> (std::sync::Arc<Store>, AccountId) {
        let store = in_maps();
        let account = open_account_with(&store, 1, 100_000).await;
        bill(&store, account, 1..=2).await;
        (store, account)
    }

    async fn bill(store: &Store, account: AccountId, numbers: std::ops::RangeInclusive<u8>) {
        let key = match store.latest_entries(account, None, 1).await.unwrap().pop() {
            Some(entry) => entry.entry.settlement.payer.key,
            None => make_key(store, account, 1, None).await,
        };
        for n in numbers {
            let id = GenerationId::new(START, [n; 10]);
            let outcomes =
                store.execute(account, vec![hold(key, id, 10, 7), capture(key, id, 10)], START).await;
            assert!(outcomes.unwrap().iter().all(Result::is_ok));
        }
    }

    #[tokio::test]
    async fn the_same_backup_restored_again_and_again_repeats_no_exported_number() {
        let (mut served, account) = backup().await;
        let mut seen = [0; 2];
        for _ in 0..3 {
            bill(&served, account, 3..=5).await;
            let (entries, events) = served.sequences(account).await.unwrap();
            let last = served.latest_entries(account, None, 1).await.unwrap()[0].number;
            let shown = [entries.exported(last), events.exported(last)];
            assert!(shown.iter().zip(seen).all(|(now, before)| *now > before), "{shown:?} after {seen:?}");
            assert_eq!(entries.after(seen[0], last), Some(if seen[0] == 0 { 0 } else { 2 }));
            seen = shown;
            let (restored, _) = backup().await;
            restored.begin_numbers_anew(Some(&served)).await.unwrap();
            served = restored;
        }
    }
}
