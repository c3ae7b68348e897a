//! The catalogue: models, prices and upstreams. It is checked completely at the start.

mod access;
mod catalog;
mod effort;
mod file;
mod hint;
mod history;
mod model;
mod preset;
mod price;
mod server;
mod table;
mod upstream;

pub use access::{ANTHROPIC_VERSION, Access, Header, Source};
pub use catalog::{Catalog, CatalogError};
pub use effort::Effort;
pub use hint::{Hint, hints};
pub use history::{CallIds, HistoryForm, ReasoningParam, SystemMessages};
pub use model::{Model, Serves, Service};
pub use preset::Preset;
pub use price::{Price, RATES, RatePair, Rates, Tier, WrittenRates, continued};
pub use server::{ServerDescription, address_below};
pub use upstream::{
    ImageUrls, LeftBeforeHead, LeftMidStream, LimitParam, Upstream, UpstreamApi, UpstreamKind,
};

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests;
