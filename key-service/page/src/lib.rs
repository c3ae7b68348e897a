//! Parts shared by the dashboard's and the operators' pages: layout, sessions, forms, failure pages, pagination, charts, and
//! how amounts and times are formatted.

pub mod app;
pub mod area;
pub mod entry;
pub mod exports;
pub mod failure;
pub mod form;
mod framed;
pub mod pagination;
pub mod second_factor;
mod shown;
pub mod sign_in;
mod site;
mod visitors;

pub use framed::{frame, layout};
pub use shown::{chart, csv, show};
pub use site::{assets, destination, headers, paths, theme};
pub use visitors::{browser, notice, object_page, operator, person, session};

#[cfg(test)]
mod fuzz;
