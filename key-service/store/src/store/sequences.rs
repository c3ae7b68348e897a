//! Exported numbers of entries and events. After a restore, and after a server was replaced, they go on above all before.

use domain::{
    event::Event,
    sequence::{Epoch, EpochBegin, Sequence},
};
use key_service_ledger::{StoreError, messages, names};
use records::{Log, Name, Order, Space};
use shared::{ids::AccountId, time::Timestamp};

use crate::store::{base::Store, books::journal_entry, events, layout};

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
        let space = names::space(account);
        let restores = self.get::<messages::Restores>(&space, name()).await?.unwrap_or_default();
        let epoch = |first| Epoch { first, begin: EpochBegin::Restored };
        let mut entries: Vec<_> = restores.first_entries.into_iter().map(epoch).collect();
        let mut events: Vec<_> = restores.first_events.into_iter().map(epoch).collect();
        for since in self.records.losses().await? {
            let since = Timestamp::from_millis(since);
            let first = self.first_since(&space, names::JOURNAL, since).await?;
            entries.push(Epoch { first, begin: EpochBegin::Lost });
            let first = self.first_since(&space, names::EVENTS, since).await?;
            events.push(Epoch { first, begin: EpochBegin::Lost });
        }
        Ok((Sequence::new(entries), Sequence::new(events)))
    }

    /// Finds by halving the first number of a log that can be a value's of this time or a later one. Values of clocks that
    /// differ may be in another order than their times; then the number is lower.
    async fn first_since(&self, space: &Space, log: Log, since: Timestamp) -> Result<u64, StoreError> {
        let newest = self.values(space, log, 0..=u64::MAX, Order::Descending, 1).await?;
        let (mut is_before, mut is_since) = (0, newest.first().map_or(1, |(number, _)| number + 1));
        while is_since - is_before > 1 {
            let middle = u64::midpoint(is_before, is_since);
            let value = self.values(space, log, middle..=middle, Order::Ascending, 1).await?;
            // A value that was dropped is older than all that were kept.
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

/// Time of an entry or an event.
fn time(log: Log, number: u64, value: &[u8]) -> Result<Timestamp, StoreError> {
    if log == names::JOURNAL {
        return Ok(journal_entry(number, value)?.entry.settlement.at);
    }
    let Event { at, .. } = events::event(number, value)?.event;
    Ok(at)
}

fn name() -> Name {
    layout::name(layout::HOUSE, *b"n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::sequence::CannotGoOn;
    use records::Records;
    use shared::ids::GenerationId;

    use crate::{
        store::Ledger as _,
        suite::{Unreliable, act, after, capture, make_key, new_key, open_account_with, over},
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

        // Nothing was written since the next one.
        records.lose_since(after(70));
        let (both, _) = store.sequences(account).await.unwrap();
        assert_eq!((both.exported(6), both.after(entries.exported(6), 6)), (entries.exported(6), Ok(6)));
    }
}
