//! Idempotency keys. For each key, the result of its request is kept until the key expires.

use domain::governed::{IdempotencyKeyReused, Made};
use key_service_ledger::{Change, StoreError, names::RecordName, stored::IdempotencyKey};
use records::Order;
use shared::{ids::AccountId, time::Timestamp};

use crate::{
    data::Idempotency,
    error::Error,
    store::{base::Store, layout},
};

/// Maximum number of expired idempotency keys that a call removes. A call adds fewer keys than that, so expired keys do
/// not accumulate. But the number is so small that no caller is delayed when the keys of a busy day are removed.
const PRUNED_AT_ONCE: usize = 64;

/// A request that creates one object, or one credential, no matter how often it is repeated.
pub(crate) struct OnceRequest {
    pub account: AccountId,
    /// Id of the object, or the beginning of the credential's digest.
    pub makes: [u8; 16],
    /// The client's idempotency key, if it sent one.
    pub idempotency: Option<Idempotency>,
}

impl Store {
    /// Creates what the request asks for, but only once for each idempotency key. If an earlier request has created it,
    /// returns what `find` finds for the id that is stored with the key. Both callbacks must begin with all their
    /// reads, so that one round trip reads the records.
    pub(crate) async fn make_once<T, R: From<IdempotencyKeyReused>>(
        &self,
        OnceRequest { account, makes, idempotency }: OnceRequest,
        mut find: impl FnMut(&mut Change<'_>, [u8; 16]) -> Result<T, Error<R>> + Send,
        mut create: impl FnMut(&mut Change<'_>) -> Result<Made<T>, Error<R>> + Send,
    ) -> Result<Made<T>, Error<R>> {
        let Some(attempt) = idempotency else { return self.lanes.change(account, create).await };
        let ended = self.ended_attempts(account, attempt.now).await?;
        let name = layout::name(layout::IDEMPOTENCY, *attempt.key.as_bytes());
        let decide = |change: &mut Change<'_>| {
            prune(change, &ended)?;
            let earlier = change.get::<IdempotencyKey>(&name)?;
            match earlier.filter(|earlier| earlier.expires_at > attempt.now) {
                Some(earlier) if earlier.request != attempt.request => {
                    Err(Error::Refused(IdempotencyKeyReused.into()))
                }
                // The same call was repeated because its answer was lost.
                Some(earlier) if earlier.made == makes => find(change, makes).map(Made::New),
                Some(earlier) => find(change, earlier.made).map(Made::Replayed),
                None => {
                    let made = create(change)?;
                    if let Made::New(_) = made {
                        keep(change, &name, &attempt, makes);
                    }
                    Ok(made)
                }
            }
        };
        self.lanes.change(account, decide).await
    }

    /// Finds the account's expired idempotency keys.
    async fn ended_attempts(&self, account: AccountId, now: Timestamp) -> Result<Vec<Vec<u8>>, StoreError> {
        let until_now = (Vec::new(), layout::behind(&layout::time(now)));
        let space = layout::space(account);
        self.read()
            .entries(&space, layout::IDEMPOTENCY_ENDS, until_now, Order::Ascending, PRUNED_AT_ONCE)
            .await
    }
}

/// Removes expired idempotency keys, unless they have been used again.
fn prune(change: &mut Change<'_>, ended: &[Vec<u8>]) -> Result<(), StoreError> {
    for entry in ended {
        if let Some((end, digest)) = entry.split_at_checked(size_of::<u64>()) {
            let name = layout::name(layout::IDEMPOTENCY, digest);
            let kept = change.get::<IdempotencyKey>(&name)?;
            if kept.is_some_and(|kept| end_of(&kept) == end) {
                change.remove(&name);
            }
        }
        change.leave(layout::IDEMPOTENCY_ENDS, entry.clone());
    }
    Ok(())
}

/// Stores what the attempt created under the attempt's idempotency key. This may overwrite an expired record. The
/// expired record's index entry stays until it is pruned.
fn keep(change: &mut Change<'_>, name: &RecordName<IdempotencyKey>, attempt: &Idempotency, made: [u8; 16]) {
    let kept = IdempotencyKey { request: attempt.request, made, expires_at: attempt.expires_at };
    change.enter(layout::IDEMPOTENCY_ENDS, [&end_of(&kept)[..], attempt.key.as_bytes()].concat());
    change.put(name, kept);
}

/// Returns the first part of an idempotency key's index entry.
fn end_of(kept: &IdempotencyKey) -> [u8; 8] {
    layout::time(kept.expires_at)
}
