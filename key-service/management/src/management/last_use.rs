//! Records the last use of management keys in the background.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::{
    ids::{AccountId, ManagementKeyId},
    time::Timestamp,
};
use tokio::time::timeout;

use domain::access::is_noted;
use key_service_store::store::{ManagementKey, Store};

/// Maximum number of writes in progress. Further uses are not recorded; the key's next request tries again.
const MAX_UNDER_WAY: usize = 256;
/// Timeout of a write. The key's next request then tries again.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

/// Management keys with a write in progress.
#[derive(Clone, Default)]
pub(crate) struct LastUses(Arc<Mutex<HashSet<ManagementKeyId>>>);

/// A write in progress, until dropped.
struct UnderWay {
    uses: LastUses,
    key: ManagementKeyId,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.uses.0.lock().remove(&self.key);
    }
}

impl LastUses {
    /// Records a use in the background, unless a recent use is recorded or a write for the key is in progress.
    pub(crate) fn note(&self, store: &Arc<Store>, account: AccountId, key: &ManagementKey, now: Timestamp) {
        if !is_noted(key.last_used_at, now) {
            return;
        }
        let Some(under_way) = self.begin(key.id) else { return };
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let recorded = timeout(RECORD_TIMEOUT, store.use_management_key(account, under_way.key, now));
            if !matches!(recorded.await, Ok(Ok(_))) {
                tracing::warn!(management_key = %under_way.key, "the use of a management key was not recorded");
            }
        });
    }

    fn begin(&self, key: ManagementKeyId) -> Option<UnderWay> {
        let mut under_way = self.0.lock();
        let is_new = under_way.len() < MAX_UNDER_WAY && under_way.insert(key);
        is_new.then(|| UnderWay { uses: self.clone(), key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_record_under_way_and_all_keys_together_have_a_bounded_number() {
        let uses = LastUses::default();
        let key = |n: usize| {
            let mut chance = [0; 10];
            chance[..8].copy_from_slice(&n.to_be_bytes());
            ManagementKeyId::new(Timestamp::from_millis(0), chance)
        };
        let under_way: Vec<_> = (0..MAX_UNDER_WAY - 1).map(|n| uses.begin(key(n)).unwrap()).collect();
        assert!(uses.begin(key(0)).is_none(), "under way");
        let last = uses.begin(key(MAX_UNDER_WAY)).unwrap();
        assert!(uses.begin(key(MAX_UNDER_WAY + 1)).is_none(), "this is the maximum");
        drop(last);
        assert!(uses.begin(key(MAX_UNDER_WAY + 1)).is_some());
        drop(under_way);
        assert!(uses.0.lock().is_empty());
    }
}
