//! Who sent a request: the browser, and the member or operator who is signed in.

pub mod browser;
pub mod notice;
pub mod object_page;
pub mod operator;
pub mod person;
pub mod session;
