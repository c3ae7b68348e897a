//! Counts of attempts, which expire. Each call that counts removes a few expired ones.

use std::time::Duration;

use domain::digest::Digest;
use key_service_ledger::{StoreError, names::RecordName, stored::Attempts, view::View};
use records::{Order, Space};
use shared::time::Timestamp;

use crate::store::{base::Store, layout};

/// Maximum number of expired counts that a call removes, to keep the commit short. A call adds at most one, so they do
/// not accumulate.
const MOST_EXPIRED: usize = 32;
/// Length of the time that begins an entry of [`layout::ATTEMPT_ENDS`].
const TIME_BYTES: usize = 8;

impl Store {
    /// Counts one more attempt under this name, and returns the count so far. The count expires at the `until` of its
    /// first attempt.
    pub async fn count_attempt(
        &self,
        name: Digest,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<u64, StoreError> {
        let (space, of_count) = count_record(&name);
        let to = Some(layout::time(now.plus(Duration::from_millis(1))).to_vec());
        let range = (Vec::new(), to);
        let ends =
            self.read().entries(&space, layout::ATTEMPT_ENDS, range, Order::Ascending, MOST_EXPIRED).await?;
        let count = |view: &mut View| {
            remove_expired(view, &ends, now);
            let counted = match view.get::<Attempts>(&of_count)? {
                Some(before) if before.until > now => {
                    Attempts { count: before.count.saturating_add(1), until: before.until }
                }
                before => {
                    if let Some(expired) = before {
                        view.leave(layout::ATTEMPT_ENDS, end(&of_count, expired));
                    }
                    let first = Attempts { count: 1, until };
                    view.enter(layout::ATTEMPT_ENDS, end(&of_count, first));
                    first
                }
            };
            view.put(&of_count, counted);
            Ok(counted.count)
        };
        self.note(&space, count).await
    }

    /// Uncounts one attempt under this name, if any was counted.
    pub async fn take_attempt_back(&self, name: Digest) -> Result<(), StoreError> {
        let (space, of_count) = count_record(&name);
        let take_back = |view: &mut View| {
            if let Some(Attempts { count, until }) = view.get(&of_count)? {
                view.put(&of_count, Attempts { count: count.saturating_sub(1), until });
            }
            Ok(())
        };
        self.note(&space, take_back).await
    }

    /// Removes the count of attempts under this name.
    pub async fn forget_attempts(&self, name: Digest) -> Result<(), StoreError> {
        let (space, of_count) = count_record(&name);
        let forget = |view: &mut View| {
            if let Some(counted) = view.get::<Attempts>(&of_count)? {
                remove(view, &of_count, counted);
            }
            Ok(())
        };
        self.note(&space, forget).await
    }
}

/// Removes the expired counts of these entries. An unreadable one stays, so that it does not block the others.
fn remove_expired(view: &mut View, ends: &[Vec<u8>], now: Timestamp) {
    for entry in ends {
        let name = layout::name(layout::ATTEMPTS, entry.get(TIME_BYTES..).unwrap_or_default());
        match view.get::<Attempts>(&name) {
            Ok(Some(counted)) if counted.until <= now => remove(view, &name, counted),
            Ok(Some(_) | None) => view.leave(layout::ATTEMPT_ENDS, entry.clone()),
            Err(_) => {}
        }
    }
}

/// Removes a count and its index entry.
fn remove(view: &mut View, name: &RecordName<Attempts>, counted: Attempts) {
    view.remove(name);
    view.leave(layout::ATTEMPT_ENDS, end(name, counted));
}

/// Encodes a count's entry in [`layout::ATTEMPT_ENDS`].
fn end(name: &RecordName<Attempts>, counted: Attempts) -> Vec<u8> {
    [&layout::time(counted.until)[..], &name.key].concat()
}

/// Returns the space and name of the record for a count.
fn count_record(name: &Digest) -> (Space, RecordName<Attempts>) {
    (layout::part_of("attempts", name.as_bytes()), layout::name(layout::ATTEMPTS, *name.as_bytes()))
}
