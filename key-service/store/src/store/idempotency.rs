//! Idempotency keys: the result of each one's request, until its time to live is over.

use key_service_ledger::{Change, StoreError, messages::IdempotencyKey};
use records::{Name, Order};
use shared::ids::AccountId;

use crate::{
    data::Idempotency,
    store::{base::Store, layout},
};

/// Ended idempotency keys that a call may remove: more than it can add, so that they do not accumulate, and few enough
/// that a busy day's keys delay no caller.
const PRUNED_AT_ONCE: usize = 64;

/// Outcome of an earlier attempt.
pub(crate) enum Earlier {
    /// The same request made, or changed, the object of this id.
    Made([u8; 16]),
    /// The idempotency key was used with another request.
    OtherRequest,
}

impl Store {
    /// Finds idempotency keys of the account that have ended, for [`prune`]; none if the attempt has no idempotency
    /// key.
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

/// Removes idempotency keys that have ended, unless they are used again.
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

/// Finds what a live idempotency key has made, if the attempt has one.
pub(crate) fn earlier(
    change: &mut Change<'_>,
    attempt: Option<&Idempotency>,
) -> Result<Option<Earlier>, StoreError> {
    let Some(attempt) = attempt else { return Ok(None) };
    let kept = change.get::<IdempotencyKey>(&name_of(attempt))?;
    let Some(kept) = kept.filter(|kept| kept.expires_at > attempt.now.millis()) else { return Ok(None) };
    if kept.request != attempt.request.as_bytes() {
        return Ok(Some(Earlier::OtherRequest));
    }
    let made = kept.made.try_into();
    made.map(|made| Some(Earlier::Made(made)))
        .map_err(|_| StoreError::Damaged("what an idempotency key made".into()))
}

/// Keeps what the attempt has made, if it has an idempotency key. An ended key may still be there; its entry in the
/// index stays until it is pruned.
pub(crate) fn keep(change: &mut Change<'_>, attempt: Option<&Idempotency>, made: &[u8; 16]) {
    let Some(attempt) = attempt else { return };
    let Idempotency { key, request, now: _, expires_at } = attempt;
    let kept = IdempotencyKey {
        request: request.as_bytes().to_vec(),
        made: made.to_vec(),
        expires_at: expires_at.millis(),
    };
    change.enter(layout::IDEMPOTENCY_ENDS, [&end_of(&kept)[..], key.as_bytes()].concat());
    change.put(&name_of(attempt), &kept);
}

fn name_of(attempt: &Idempotency) -> Name {
    layout::name(layout::IDEMPOTENCY, *attempt.key.as_bytes())
}

/// Beginning of an idempotency key's entry in the index.
fn end_of(kept: &IdempotencyKey) -> [u8; 8] {
    layout::time(shared::time::Timestamp::from_millis(kept.expires_at))
}
