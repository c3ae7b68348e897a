//! Runs streams for tenants with small caps through several replicas at once, and measures how far each system exceeded
//! the caps, and how much of them could be used. The upstream's own count is the truth. Every system gets the same
//! clients.

pub use outcome::Outcome;
pub use report::table;
pub use setting::Gateway;

mod drive;
mod faregate;
mod litellm;
mod outcome;
mod report;
mod setting;

/// Runs a system once, with or without kills. An error says why the system cannot run here.
pub async fn run(gateway: Gateway, with_kills: bool, seed: u64) -> Result<Outcome, String> {
    match gateway {
        Gateway::Faregate => Ok(faregate::run(with_kills, seed).await),
        Gateway::Litellm => litellm::run(with_kills, seed).await,
    }
}
