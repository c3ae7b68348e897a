//! The exported numbers of entries and events. After a restore or a failover to a replica, they continue above all
//! earlier numbers.

use domain::{
    event::Event,
    sequence::{Epoch, EpochBegin, Sequence, next_epoch},
};
use key_service_ledger::{
    StoreError,
    names::{self, RecordName},
    stored::{AccountRecord, Restores},
};
use records::{Log, Order, Space};
use shared::{ids::AccountId, time::Timestamp};

use crate::store::{base::Store, books::journal_entry, events, layout};

impl Store {
    /// Starts new exported numbers for the entries and events of every account in a restored store. The store must not
    /// be in use yet. `replaced` is the store that the restored store replaces, if `replaced` can be read.
    pub async fn begin_numbers_anew(&self, replaced: Option<&Self>) -> Result<(), StoreError> {
        let now = self.clock.now();
        for account in self.accounts().await? {
            let space = names::space(account.id);
            let of_replaced: Option<Restores> = match replaced {
                // A damaged record must not block the restore that repairs the store.
                Some(replaced) => replaced.read().get(&space, name()).await.unwrap_or_default(),
                None => None,
            };
            let of_replaced = of_replaced.as_ref().and_then(last_epoch);
            self.change(&space, |view| {
                let Some(account) = view.get::<AccountRecord>(&names::account())? else { return Ok(()) };
                let mut restores: Restores = view.get(&name())?.unwrap_or_default();
                let epoch = next_epoch(last_epoch(&restores).into_iter().chain(of_replaced), now);
                restores.first_entries.push(account.entries + 1);
                restores.first_events.push(account.events + 1);
                restores.epochs.push(epoch);
                view.put(&name(), restores);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Returns the epochs of the account's journal and of its events.
    pub async fn sequences(&self, account: AccountId) -> Result<(Sequence, Sequence), StoreError> {
        let space = names::space(account);
        let kept: Restores = self.read().get(&space, name()).await?.unwrap_or_default();
        let (mut entries, mut events) = (Vec::new(), Vec::new());
        let mut add = |begin, firsts: [u64; 2], number| {
            let [of_entries, of_events] = firsts.map(|first| Epoch { first, begin, number });
            entries.push(of_entries);
            events.push(of_events);
        };
        for ((entry, event), number) in kept.first_entries.into_iter().zip(kept.first_events).zip(kept.epochs)
        {
            add(EpochBegin::Restored, [entry, event], number);
        }
        for ((entry, event), number) in
            kept.lost_entries.into_iter().zip(kept.lost_events).zip(kept.lost_epochs)
        {
            add(EpochBegin::Lost, [entry, event], number);
        }
        for since in self.records.losses().await? {
            let (firsts, number) = self.lost_since(&space, since).await?;
            add(EpochBegin::Lost, firsts, number);
        }
        Ok((Sequence::new(entries), Sequence::new(events)))
    }

    /// Records the losses of the store of which this store is a copy, so that exported numbers stay the same.
    pub async fn keep_losses(&self, of: &Self) -> Result<(), StoreError> {
        let losses = of.records.losses().await?;
        if losses.is_empty() {
            return Ok(());
        }
        for account in self.accounts().await? {
            let space = names::space(account.id);
            let mut lost = Vec::with_capacity(losses.len());
            for since in &losses {
                lost.push(self.lost_since(&space, *since).await?);
            }
            self.change(&space, |view| {
                let mut kept: Restores = view.get(&name())?.unwrap_or_default();
                for ([entry, event], epoch) in &lost {
                    kept.lost_entries.push(*entry);
                    kept.lost_events.push(*event);
                    kept.lost_epochs.push(*epoch);
                }
                view.put(&name(), kept);
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Returns the numbers of the first entry and the first event that may have been written after a loss at this time,
    /// and the epoch of the loss.
    async fn lost_since(&self, space: &Space, since: i64) -> Result<([u64; 2], u64), StoreError> {
        let since = Timestamp::from_millis(since);
        let entry = self.first_since(space, names::JOURNAL, since).await?;
        let event = self.first_since(space, names::EVENTS, since).await?;
        Ok(([entry, event], next_epoch([], since)))
    }

    /// Finds, by binary search, the number of a log's first value that may be from this time or later. Because clocks
    /// may differ, values may be out of order. In that case, the returned number is too low rather than too high.
    async fn first_since(&self, space: &Space, log: Log, since: Timestamp) -> Result<u64, StoreError> {
        let newest = self.read().values(space, log, 0..=u64::MAX, Order::Descending, 1).await?;
        let (mut is_before, mut is_since) = (0, newest.first().map_or(1, |(number, _)| number + 1));
        while is_since - is_before > 1 {
            let middle = u64::midpoint(is_before, is_since);
            let value = self.read().values(space, log, middle..=middle, Order::Ascending, 1).await?;
            // A dropped value is older than all values that are kept.
            let is_middle_since = match value.first() {
                Some((number, value)) => time(log, *number, value)? >= since,
                None => false,
            };
            if is_middle_since {
                is_since = middle;
            } else {
                is_before = middle;
            }
        }
        Ok(is_since)
    }
}

/// Returns the time of an entry or event.
fn time(log: Log, number: u64, value: &[u8]) -> Result<Timestamp, StoreError> {
    if log == names::JOURNAL {
        return Ok(journal_entry(number, value)?.entry.settlement.at);
    }
    let Event { at, .. } = events::event(number, value)?.event;
    Ok(at)
}

fn last_epoch(restores: &Restores) -> Option<u64> {
    restores.epochs.last().copied()
}

fn name() -> RecordName<Restores> {
    layout::name(layout::HOUSE, *b"n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::{ledger::histories::START, sequence::CannotGoOn};
    use records::Records;
    use shared::ids::GenerationId;

    use super::*;
    use crate::{
        store::Ledger as _,
        suite::{Unreliable, act, after, capture, hold, in_maps, make_key, new_key, open_account_with, over},
    };

    #[tokio::test]
    async fn entries_and_events_since_a_loss_are_numbered_above_all_before() {
        let records = Arc::new(Unreliable::default());
        let store = over(Arc::clone(&records) as Arc<dyn Records>);
        let account = open_account_with(&store, 1, 1_000).await;
        let key = make_key(&store, account, 1, None).await;
        for n in 1..=6 {
            let generation = GenerationId::new(after(10 * u64::from(n)), [n; 10]);
            store
                .execute(account, vec![capture(key, generation, 1)], after(10 * u64::from(n)))
                .await
                .unwrap();
            store.create_key(new_key(account, 1 + n), None, &act(after(10 * u64::from(n)))).await.unwrap();
        }
        let page = store.events_after(account, 0, 1_000).await.unwrap();
        let events = page.events.last().unwrap().number;
        let (entries, of_events) = store.sequences(account).await.unwrap();
        assert_eq!((entries.exported(6), of_events.exported(events)), (6, events));

        records.lose_since(after(45));
        let (entries, of_events) = store.sequences(account).await.unwrap();
        assert_eq!([1, 4].map(|number| entries.exported(number)), [1, 4]);
        assert!(entries.exported(5) > 1_000);
        assert_eq!(entries.after(4, 6), Ok(4));
        assert_eq!([5, 6].map(|seen| entries.after(seen, 6)), [Err(CannotGoOn::MayBeLost(4)); 2]);
        assert_eq!(entries.after(entries.exported(5), 6), Ok(5));
        assert_eq!(of_events.exported(events - 2), events - 2);
        assert_eq!(of_events.after(events, events), Err(CannotGoOn::MayBeLost(events - 2)));

        // A copy keeps the losses, although its own servers have lost nothing.
        let copy = in_maps();
        let copied = records::copy::copy(&store.records, &copy.records, |_| ()).await;
        copied.unwrap();
        copy.keep_losses(&store).await.unwrap();
        assert_eq!(copy.sequences(account).await.unwrap(), (entries.clone(), of_events));

        // Nothing was written between this loss and the next.
        records.lose_since(after(70));
        let (both, _) = store.sequences(account).await.unwrap();
        assert_eq!((both.exported(6), both.after(entries.exported(6), 6)), (entries.exported(6), Ok(6)));
    }

    /// Creates a backup of an account with two entries. The account was never restored before.
    async fn backup() -> (Arc<Store>, AccountId) {
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
            assert_eq!(entries.after(seen[0], last), Ok(if seen[0] == 0 { 0 } else { 2 }));
            seen = shown;
            let (restored, _) = backup().await;
            restored.begin_numbers_anew(Some(&served)).await.unwrap();
            served = restored;
        }
    }
}
