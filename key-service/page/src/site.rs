//! What all pages have in common: assets, headers, paths, colours, and the document.

pub mod assets;
pub mod destination;
pub(crate) mod document;
pub mod headers;
pub mod paths;
pub mod theme;
