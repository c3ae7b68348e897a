//! Assets, headers, paths, themes and the HTML document.

pub mod assets;
pub mod destination;
pub(crate) mod document;
pub mod headers;
pub mod paths;
pub mod theme;
