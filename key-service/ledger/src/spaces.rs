//! Changes spaces that hold no money.

use std::sync::Arc;

use records::{Committed, Failure, Records, Revision, Space};
use shared::clock::{Clock, random_bytes};

use crate::{
    error::StoreError,
    view::{self, View},
};

/// Maximum number of attempts at a change while others change the same space.
const MOST_ATTEMPTS: u32 = 100;

/// Changes a space that holds no money. `decide` runs again after a conflict, and whenever it needed records that had
/// not been read. If it refuses, nothing changes.
pub async fn change_space<T>(
    records: &Arc<dyn Records>,
    clock: &dyn Clock,
    space: &Space,
    mut decide: impl FnMut(&mut View) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let mut view = View::of(space);
    for _ in 0..MOST_ATTEMPTS {
        let term = records.term(space).await;
        view.begin();
        let decided = decide(&mut view);
        if view.is_missing_some() {
            view::read(records, &mut view).await?;
            continue;
        }
        let answer = decided?;
        let revision = Revision(random_bytes(clock));
        let commit = view.commit(revision, Vec::new(), Vec::new());
        // A single record that was only read needs no commit to confirm it.
        if !commit.writes.is_empty() || commit.guards.len() > 1 {
            let committed = records.commit(space, commit).await?;
            if let Committed::Conflict(present) = committed {
                view.replace(present);
                continue;
            }
        }
        records.settle(space, view.durability, term).await?;
        return Ok(answer);
    }
    Err(Failure::NotDone("others change the same records".into()).into())
}
