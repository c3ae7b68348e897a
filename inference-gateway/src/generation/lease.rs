//! Keeps a hold alive while its request waits.

use std::{convert::Infallible, time::Duration};

use shared::{rpc::v1, tokens::Usage};
use tokio::time::sleep;

use crate::keys::{Extension, Grant, Keys, Unavailable};

/// Renewals that may fail in a row before a lease runs out.
const RENEWALS_PER_LEASE: u32 = 3;

/// An open hold's lease.
#[derive(Clone)]
pub(super) struct Lease {
    keys: Keys,
    hold: v1::HoldRef,
    every: Duration,
    prompt_tokens: u64,
}

impl Lease {
    /// The lease of this grant.
    pub(super) fn new(keys: Keys, grant: &Grant) -> Self {
        Self {
            keys,
            hold: grant.hold.clone(),
            every: grant.lease / RENEWALS_PER_LEASE,
            prompt_tokens: grant.prompt_tokens,
        }
    }

    /// Tokens of the prompt that the hold covers.
    pub(super) const fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    /// The prompt turned out to have so many tokens.
    pub(super) const fn cover_prompt(&mut self, exact: u64) {
        self.prompt_tokens = exact;
    }

    /// How often it has to be renewed.
    pub(super) const fn every(&self) -> Duration {
        self.every
    }

    /// Renews it for as long as it is polled. A key that is revoked meanwhile still gets its whole answer.
    pub(super) async fn keep(&self) -> Infallible {
        loop {
            sleep(self.every).await;
            if let Err(e) = self.extend(Usage::default(), 0, 0).await {
                tracing::warn!(generation = self.hold.generation_id, error = %e, "a lease was not renewed; trying again");
            }
        }
    }

    /// Renews it once, reports `usage`, and asks for `output_tokens` in total beside a prompt of `prompt_tokens`.
    pub(super) async fn extend(
        &self,
        usage: Usage,
        prompt_tokens: u64,
        output_tokens: u64,
    ) -> Result<Extension, Unavailable> {
        self.keys.extend(&self.hold, usage, prompt_tokens, output_tokens).await
    }
}
