//! Parts of the dashboard's pages: the document around a page, the session behind it, forms, failures, and how amounts,
//! times and charts are shown.

pub mod app;
pub mod assets;
pub mod browser;
pub mod chart;
pub mod csv;
pub mod destination;
mod document;
pub mod entry;
pub mod exports;
pub mod failure;
pub mod failure_page;
pub mod form;
pub mod layout;
pub mod notice;
pub mod pagination;
pub mod paths;
pub mod session;
pub mod show;
pub mod theme;

#[cfg(test)]
mod fuzz;
