//! Who sends a request: a browser, and the member or the operator behind it.

pub mod browser;
pub mod notice;
pub mod object_page;
pub mod operator;
pub mod session;
pub mod visitor;
