//! A worker's holds that are open or not yet settled.

use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::{Mutex, MutexGuard};
use shared::ids::GenerationId;
use tokio_util::task::TaskTracker;

use crate::{hold_state::HoldState, keys::Keys, spool::Spool};

/// The open holds of a worker. Cheap to clone.
#[derive(Clone)]
pub struct Holds(Arc<HoldsInner>);

struct HoldsInner {
    keys: Keys,
    unresolved: Mutex<HashMap<GenerationId, Arc<HoldState>>>,
    spool: Option<Spool>,
    settling: TaskTracker,
}

impl Holds {
    /// Makes the empty set of a worker's holds. `settling` tracks settlements that are being delivered.
    pub fn new(keys: Keys, spool: Option<Spool>, settling: TaskTracker) -> Self {
        Self(Arc::new(HoldsInner { keys, unresolved: Mutex::default(), spool, settling }))
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.0.keys
    }

    pub(crate) fn unresolved(&self) -> MutexGuard<'_, HashMap<GenerationId, Arc<HoldState>>> {
        self.0.unresolved.lock()
    }

    pub(crate) fn spool(&self) -> Option<&Spool> {
        self.0.spool.as_ref()
    }

    pub(crate) fn settling(&self) -> &TaskTracker {
        &self.0.settling
    }
}
