//! A model on offer, and the service's description of itself.

use std::sync::Arc;

use serde::Deserialize;

use crate::{
    effort::Effort,
    price::Price,
    upstream::{Upstream, UpstreamApi},
};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    pub name: String,
    pub provider: String,
    pub docs: String,
}

/// A model as clients see it.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name that clients request, matched exactly.
    pub id: String,
    /// Other names that clients may request.
    pub aliases: Vec<String>,
    pub owned_by: String,
    /// When the model was added, in seconds since 1970, for lists.
    pub created: i64,
    /// Maximum number of tokens of prompt and output together.
    pub context_window: u64,
    /// Maximum number of output tokens per choice; 0 if a model without chat sets no limit.
    pub max_output_tokens: u64,
    /// Maximum number of tokens for an image, used for holds.
    pub max_tokens_per_image: u64,
    /// Request fields that are forwarded to the upstream beyond the allow-list.
    pub extra_params: Vec<String>,
    /// APIs that the model is served through.
    pub serves: Serves,
    /// Reasoning efforts that the model accepts. If it accepts none, a request that names one is refused, or its effort
    /// is dropped.
    pub efforts: Vec<Effort>,
    /// Price of requests, shared with the holds that they open.
    pub price: Arc<Price>,
    /// Servers of the model; never empty.
    pub upstreams: Vec<Upstream>,
}

/// APIs that a model is served through; at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Serves {
    /// Chat completions, in each of their dialects.
    pub chat: bool,
    pub embeddings: bool,
}

impl Serves {
    pub const CHAT: Self = Self { chat: true, embeddings: false };
}

impl Model {
    /// Returns whether every upstream speaks the client's own API.
    pub fn passes(&self, client: UpstreamApi) -> bool {
        self.upstreams.iter().all(|upstream| upstream.api_for(client) == client)
    }
}
