//! The keys of a run, shared by its clients, its owner and its judge.

use shared::ids::KeyId;
use tokio::time::Instant;

pub(crate) struct RunKey {
    pub(crate) id: KeyId,
    pub(crate) credential: String,
    /// When the answer to a revocation arrived.
    pub(crate) revoked: Option<Instant>,
}
