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

/// A model, with what clients may request of it and the servers that run it.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name that clients request, matched exactly.
    pub id: String,
    /// Other names that clients may request.
    pub aliases: Vec<String>,
    pub owned_by: String,
    /// Time at which the model was added, in seconds since 1970. Lists of models show it.
    pub created: i64,
    /// Maximum number of tokens that the prompt and the output may have together.
    pub context_window: u64,
    /// Maximum number of output tokens per choice; 0 for a model that does not serve chat and for which no limit is
    /// set.
    pub max_output_tokens: u64,
    /// Maximum number of tokens that an image may need. Holds are based on it.
    pub max_tokens_per_image: u64,
    /// Request fields that are forwarded to the upstream in addition to those on the allow-list.
    pub extra_params: Vec<String>,
    /// APIs through which clients can use the model.
    pub serves: Serves,
    /// Reasoning efforts that the model accepts. If it accepts none, a request that names an effort is refused, or the
    /// effort is dropped.
    pub efforts: Vec<Effort>,
    /// Price of requests. Each hold that a request opens keeps a reference to it.
    pub price: Arc<Price>,
    /// Servers that run the model. There is at least one.
    pub upstreams: Vec<Upstream>,
}

/// APIs through which clients can use a model. At least one is true.
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
