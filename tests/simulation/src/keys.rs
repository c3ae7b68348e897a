//! The keys of a run, as its clients, its owner and its judge know them.

use shared::ids::KeyId;
use tokio::time::Instant;

/// A key of the run.
pub(crate) struct RunKey {
    pub(crate) id: KeyId,
    pub(crate) credential: String,
    /// Time at which the answer to a revocation came.
    pub(crate) revoked: Option<Instant>,
}
