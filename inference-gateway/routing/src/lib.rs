//! Decides, by the outcomes of earlier requests, which upstream a request goes to.

mod affinity;
mod choice;
mod template;

pub use affinity::{affinity, cache_salt, identity};
pub use choice::{AttemptOutcome, Candidate, Health, choose};
pub use template::TemplateReports;
