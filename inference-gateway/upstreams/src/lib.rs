//! The available models and their servers: choosing a server, sending a request, and classifying failures.

mod client;
mod count;
mod dialect;
mod drained;
mod failure;
mod headers;
mod learned;
mod model_metrics;
mod models;
mod passed_head;
mod pool;
mod state;
mod upstream;

pub use client::UpstreamClient;
pub use count::{CountTerms, NotCounted, PromptCount};
pub use failure::{NotAnswered, UpstreamFailure, of_event};
pub use model_metrics::{ModelMetrics, OK, Operation};
pub use models::{Models, OfferedModels};
pub use passed_head::PassedHead;
pub use pool::{FailedAttempt, Pool, Running};
pub use state::UpstreamNow;
pub use upstream::{BegunAnswer, Terms, Upstream, next_bytes};
