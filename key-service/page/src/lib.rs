//! Parts of the pages of the dashboard and of operators: the document around a page, the session behind it, forms, failures, and how amounts,
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
pub mod frame;
pub mod headers;
pub mod layout;
pub mod notice;
pub mod operator;
pub mod pagination;
pub mod paths;
pub mod second_factor;
pub mod session;
pub mod show;
pub mod theme;
pub mod visitor;

#[cfg(test)]
mod fuzz;
