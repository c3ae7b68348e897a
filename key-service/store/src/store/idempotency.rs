//! Idempotency keys: the result of each key's request, until the key expires.

use key_service_ledger::{Change, StoreError, names::RecordName, stored::IdempotencyKey};
use records::Order;
use shared::ids::AccountId;

use crate::{
    data::Idempotency,
    store::{base::Store, layout},
};

/// Expired idempotency keys that a call may remove: more than it can add, so that they do not accumulate, and few
/// enough that a busy day's keys delay no caller.
const PRUNED_AT_ONCE: usize = 64;

/// Outcome of an earlier attempt.
pub(crate) enum Earlier {
    /// The same request created or changed the object with this id.
    Made([u8; 16]),
    /// The idempotency key was used with a different request.
    OtherRequest,
}

impl Store {
    /// Finds expired idempotency keys of the account for [`prune`]; none if this attempt has no idempotency key.
    pub(crate) async fn ended_attempts(
        &self,
        account: AccountId,
        attempt: Option<&Idempotency>,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let Some(attempt) = attempt else { return Ok(Vec::new()) };
        let until_now = (Vec::new(), layout::behind(&layout::time(attempt.now)));
        let space = layout::space(account);
        self.read()
            .entries(&space, layout::IDEMPOTENCY_ENDS, until_now, Order::Ascending, PRUNED_AT_ONCE)
            .await
    }
}

/// Removes expired idempotency keys, unless they have been used again.
pub(crate) fn prune(change: &mut Change<'_>, ended: &[Vec<u8>]) -> Result<(), StoreError> {
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

/// Finds the result of the attempt's idempotency key, if it has one that is still alive.
pub(crate) fn earlier(
    change: &mut Change<'_>,
    attempt: Option<&Idempotency>,
) -> Result<Option<Earlier>, StoreError> {
    let Some(attempt) = attempt else { return Ok(None) };
    let kept = change.get::<IdempotencyKey>(&name_of(attempt))?;
    let Some(kept) = kept.filter(|kept| kept.expires_at > attempt.now) else { return Ok(None) };
    let is_same = kept.request == attempt.request;
    Ok(Some(if is_same { Earlier::Made(kept.made) } else { Earlier::OtherRequest }))
}

/// Stores the attempt's result under its idempotency key, if it has one. An expired record may be overwritten; its
/// index entry stays until it is pruned.
pub(crate) fn keep(change: &mut Change<'_>, attempt: Option<&Idempotency>, made: &[u8; 16]) {
    let Some(attempt) = attempt else { return };
    let Idempotency { key, request, now: _, expires_at } = *attempt;
    let kept = IdempotencyKey { request, made: *made, expires_at };
    change.enter(layout::IDEMPOTENCY_ENDS, [&end_of(&kept)[..], key.as_bytes()].concat());
    change.put(&name_of(attempt), kept);
}

fn name_of(attempt: &Idempotency) -> RecordName<IdempotencyKey> {
    layout::name(layout::IDEMPOTENCY, *attempt.key.as_bytes())
}

/// First part of an idempotency key's index entry.
fn end_of(kept: &IdempotencyKey) -> [u8; 8] {
    layout::time(kept.expires_at)
}
