//! What every generation of a worker needs.

use std::{sync::Arc, time::Duration};

use admission::Admission;
use holds::{Holds, Keys};
use shared::clock::Clock;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use upstreams::UpstreamClient;

/// Runs generations; one generator per worker.
pub(crate) struct Generator {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: Keys,
    /// The open holds of this worker.
    pub(crate) holds: Holds,
    /// This worker's connections to upstreams.
    pub(crate) http: UpstreamClient,
    /// Every request until its answer begins, and every generation that runs.
    pub(crate) running: TaskTracker,
    /// Cancelled when generations that still run must end.
    pub(crate) cut: CancellationToken,
    /// Time without reads after which the client of a stream counts as gone.
    pub(crate) client_stall: Duration,
    pub(crate) admission: Admission,
    /// Timeout for an upstream to begin its answer.
    pub(crate) answer_deadline: Duration,
    /// Time for which an upstream may send nothing of an answer that it has begun.
    pub(crate) upstream_silence: Duration,
}
