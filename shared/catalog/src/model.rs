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
    /// Name by which clients request the model, exactly.
    pub id: String,
    /// Further names by which clients may request the model.
    pub aliases: Vec<String>,
    pub owned_by: String,
    /// When the model was added, in seconds since 1970, for listings.
    pub created: i64,
    /// Tokens of prompt and output together.
    pub context_window: u64,
    /// Limit of tokens per choice; 0 if a model without chat sets none.
    pub max_output_tokens: u64,
    /// Bound on the tokens of an image, used for holds.
    pub max_tokens_per_image: u64,
    /// Request fields that are forwarded to the upstream beyond the allow-list.
    pub extra_params: Vec<String>,
    /// APIs that the model is served through.
    pub serves: Serves,
    /// Words of reasoning effort that the model takes. Without any, a request that names one is refused, or its word is
    /// dropped.
    pub efforts: Vec<Effort>,
    /// Price of a request, shared with the holds that it opens.
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
