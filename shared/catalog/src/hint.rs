//! Ways in which a valid catalogue may still lose money.

use std::fmt;

use crate::{
    catalog::Catalog,
    model::Model,
    price::RatePair,
    upstream::{LeftMidStream, Upstream, UpstreamKind},
};

/// A way in which an upstream may cost more than the model earns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Its streams hide tokens, which are not billed if a client leaves midway.
    HidesTokens,
    /// A rate of the price is lower than the same rate of the cost.
    SellsBelowCost(RatePair),
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HidesTokens => f.write_str(
                "hidden tokens, such as reasoning, are not billed when a client leaves mid-stream. Set left_mid_stream \
                 = \"finish\", or streams_every_token = true if the upstream hides none.",
            ),
            Self::SellsBelowCost(pair) => {
                write!(f, "{pair} sells for {} and costs {}.", pair.first, pair.second)
            }
        }
    }
}

/// Lists these hints in the catalogue's order.
pub fn hints(catalog: &Catalog) -> impl Iterator<Item = (&Model, &Upstream, Hint)> {
    catalog.models.iter().flat_map(|model| {
        model.upstreams.iter().flat_map(move |upstream| {
            let hides = may_hide_tokens(upstream) && upstream.left_mid_stream == LeftMidStream::Stop;
            let costs = upstream.cost.iter().flat_map(|cost| model.price.beside(cost));
            let below = costs.filter(|pair| pair.first < pair.second).map(Hint::SellsBelowCost);
            let hints = hides.then_some(Hint::HidesTokens).into_iter().chain(below);
            hints.map(move |hint| (model, upstream, hint))
        })
    })
}

/// Returns whether an upstream may generate tokens that no chunk shows, and that it reports only at the end.
const fn may_hide_tokens(upstream: &Upstream) -> bool {
    match upstream.kind {
        UpstreamKind::Openai | UpstreamKind::Anthropic | UpstreamKind::Ollama => {
            !upstream.streams_every_token
        }
        UpstreamKind::Vllm | UpstreamKind::Sglang | UpstreamKind::LlamaCpp | UpstreamKind::Builtin => false,
    }
}
