//! State shared by all generations of a worker.

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
    /// Tracks requests whose answer has not begun, and running generations.
    pub(crate) running: TaskTracker,
    /// Cancelled when running generations must end.
    pub(crate) cut: CancellationToken,
    /// How long a stream's client may read nothing before it counts as gone.
    pub(crate) client_stall: Duration,
    pub(crate) admission: Admission,
    /// Timeout for an upstream to begin its answer.
    pub(crate) answer_deadline: Duration,
    /// How long an upstream may be silent within an answer.
    pub(crate) upstream_silence: Duration,
}
