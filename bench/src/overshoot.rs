//! Streams of tenants with small caps through several replicas at once: what a gateway served beyond the caps, and how much of them could
//! be used. The upstream's own count is the truth. The same clients ask every system.

pub use outcome::Outcome;
pub use report::table;
pub use setting::Gateway;

mod drive;
mod faregate;
mod litellm;
mod outcome;
mod report;
mod setting;

/// Runs a system once, with kills or without; an error says why it cannot run here.
pub async fn run(gateway: Gateway, with_kills: bool, seed: u64) -> Result<Outcome, String> {
    match gateway {
        Gateway::Faregate => Ok(faregate::run(with_kills, seed).await),
        Gateway::Litellm => litellm::run(with_kills, seed).await,
    }
}
