//! The keys of a run. The run's clients, its owner and its judge share them.

use shared::ids::KeyId;
use tokio::time::Instant;

pub(crate) struct RunKey {
    pub(crate) id: KeyId,
    pub(crate) credential: String,
    /// Time at which the answer to the key's revocation arrived.
    pub(crate) revoked: Option<Instant>,
}
