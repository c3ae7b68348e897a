//! Keeps a hold alive while its request waits.

use std::{convert::Infallible, time::Duration};

use shared::{rpc::v1, tokens::Usage};
use tokio::time::sleep;

use crate::keys::{Extension, Grant, Keys, Unavailable};

/// Renewals that may fail in a row before a lease runs out.
const RENEWALS_PER_LEASE: u32 = 3;
/// How often a stream's lease is renewed all the same, since that is when a revocation of its key is heard: well within
/// five seconds.
const LOOK: Duration = Duration::from_secs(2);

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

    /// How often a stream renews it.
    pub(super) fn every_of_stream(&self) -> Duration {
        self.every.min(LOOK)
    }

    /// Renews it for as long as it is polled. A key that is revoked meanwhile still gets its whole answer.
    pub(super) async fn keep(&self) -> Infallible {
        loop {
            sleep(self.every).await;
            self.renew().await;
        }
    }

    /// Renews it as often as a stream does, until the key turns out to be revoked.
    pub(super) async fn keep_until_revoked(&self) {
        loop {
            sleep(self.every_of_stream()).await;
            if self.renew().await {
                return;
            }
        }
    }

    /// Renews it once, with nothing used yet. Whether the key is known to be revoked.
    async fn renew(&self) -> bool {
        match self.extend(Usage::default(), 0, 0).await {
            Ok(Extension::Open { revoked, output_tokens: _ }) => revoked,
            Ok(Extension::Gone) => false,
            Err(e) => {
                tracing::warn!(generation = self.hold.generation_id, error = %e, "a lease was not renewed; trying again");
                false
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
