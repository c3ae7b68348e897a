use std::{pin::Pin, sync::Arc};

use holds::{OpenHold, Unavailable};
use metering::{PaceMeter, StreamMeter};
use shared_rpc::Extended;
use tokio::time::Instant;
use upstreams::Running;

use super::deadlines::Deadlines;
use crate::{
    client::Pipe,
    generation::{answer_permit::AnswerPermit, generator::Generator, job::Job, log::GenerationLog},
};

/// An extension in flight: the tokens requested, and the answer.
pub(super) type Extending = Pin<Box<dyn Future<Output = (u64, Result<Extended, Unavailable>)> + Send>>;

/// A stream in progress, with everything that its end needs.
pub(super) struct Stream {
    pub(super) generator: Arc<Generator>,
    pub(super) job: Job,
    pub(super) hold: OpenHold,
    pub(super) meter: StreamMeter,
    pub(super) running: Running,
    pub(super) log: GenerationLog,
    pub(super) pipe: Pipe,
    /// Memory for an event that is large or incomplete.
    pub(super) memory: AnswerPermit,
    pub(super) extending: Option<Extending>,
    pub(super) deadlines: Deadlines,
    /// Start of the stream. The times of its pace count from here.
    pub(super) began: Instant,
    pub(super) pace: PaceMeter,
    /// Number of signs of output so far.
    pub(super) signs: u64,
}
