//! Keys and other secrets.

pub mod key;
pub mod secret;
