//! Records the last use of management keys and operator keys in the background.

use std::{collections::HashSet, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::{ids::Principal, time::Timestamp};
use tokio::time::timeout;

use domain::access::is_noted;
use key_service_store::store::{Store, StoreError};

/// Maximum number of writes in progress. Further uses are not recorded; the key's next request tries again.
const MAX_UNDER_WAY: usize = 256;
/// Timeout of a write. The key's next request then tries again.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);

/// Keys with a write in progress.
#[derive(Clone, Default)]
pub(crate) struct LastUses(Arc<Mutex<HashSet<Principal>>>);

/// A write in progress. It counts as finished when this value is dropped.
struct UnderWay {
    uses: LastUses,
    key: Principal,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.uses.0.lock().remove(&self.key);
    }
}

impl LastUses {
    /// Records a use in the background, unless a recent use is recorded or a write for the key is in progress.
    pub(crate) fn note(
        &self,
        store: &Arc<Store>,
        key: Principal,
        last_used_at: Option<Timestamp>,
        now: Timestamp,
    ) {
        if !is_noted(last_used_at, now) {
            return;
        }
        let Some(under_way) = self.begin(key) else { return };
        let store = Arc::clone(store);
        tokio::spawn(async move {
            if !matches!(timeout(RECORD_TIMEOUT, record(&store, under_way.key, now)).await, Ok(Ok(_))) {
                tracing::warn!(key = ?under_way.key, "the use of a key was not recorded");
            }
        });
    }

    fn begin(&self, key: Principal) -> Option<UnderWay> {
        let mut under_way = self.0.lock();
        let is_new = under_way.len() < MAX_UNDER_WAY && under_way.insert(key);
        is_new.then(|| UnderWay { uses: self.clone(), key })
    }
}

/// Records a use. The uses of API keys are not recorded, because bills show them.
async fn record(store: &Store, key: Principal, now: Timestamp) -> Result<bool, StoreError> {
    match key {
        Principal::ManagementKey(account, id) => store.use_management_key(account, id, now).await,
        Principal::OperatorKey(_, id) => store.use_operator_key(id, now).await,
        Principal::ApiKey(..) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use shared::ids::{AccountId, ManagementKeyId};

    use super::*;

    #[test]
    fn a_key_has_one_record_under_way_and_all_keys_together_have_a_bounded_number() {
        let uses = LastUses::default();
        let key = |n: usize| {
            let mut chance = [0; 10];
            chance[..8].copy_from_slice(&n.to_be_bytes());
            let account = AccountId::new(Timestamp::from_millis(0), [0; 10]);
            Principal::ManagementKey(account, ManagementKeyId::new(Timestamp::from_millis(0), chance))
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
