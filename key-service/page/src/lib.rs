//! What the dashboard's pages and the operators' pages have in common: layout, sessions, forms, failure pages,
//! pagination, charts, and the formats of amounts and times.

pub mod app;
pub mod area;
pub mod entry;
pub mod exports;
pub mod failure;
pub mod form;
/// The layout around the content of every page.
mod layouts {
    pub mod frame;
    pub mod layout;
}
pub mod pagination;
pub mod second_factor;
/// Formatting of amounts, times and keys on pages and in files, and charts.
mod format {
    pub mod chart;
    pub mod csv;
    pub mod show;
    pub mod table;
}
pub mod sign_in;
/// Assets, headers, paths, themes, time zones and the HTML document.
mod site {
    pub mod assets;
    pub mod destination;
    pub(crate) mod document;
    pub mod headers;
    pub mod paths;
    pub mod theme;
    pub mod zone;
}
/// Finds out who sent a request: the browser, and the member or operator who is signed in.
mod visitors {
    pub mod browser;
    pub mod notice;
    pub mod object_page;
    pub mod operator;
    pub mod person;
    pub mod session;
}

pub use format::{chart, csv, show, table};
pub use layouts::{frame, layout};
pub use site::{assets, destination, headers, paths, theme, zone};
pub use visitors::{browser, notice, object_page, operator, person, session};

#[cfg(test)]
mod fuzz;
