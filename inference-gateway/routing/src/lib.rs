//! Decides which upstream a request goes to, from the outcomes of earlier requests.

mod affinity;
mod choice;
mod template;

pub use affinity::{affinity, cache_salt, identity};
pub use choice::{AttemptOutcome, Candidate, Health, choose};
pub use template::TemplateReports;
