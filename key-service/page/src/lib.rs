//! Parts of the pages of the dashboard and of operators: the document around a page, the session behind it, forms, failures, and how amounts,
//! times and charts are shown.

pub mod app;
pub mod entry;
pub mod exports;
pub mod failure;
pub mod form;
mod framed;
pub mod pagination;
pub mod second_factor;
mod shown;
mod site;
mod visitors;

pub use framed::{failure_page, frame, layout};
pub use shown::{chart, csv, show};
pub use site::{assets, destination, headers, paths, theme};
pub use visitors::{browser, notice, object_page, operator, session, visitor};

#[cfg(test)]
mod fuzz;
