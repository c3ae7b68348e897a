//! The documents for beginners. Their commands are run as printed.

pub(crate) mod demo_model;
pub(crate) mod first_request;
pub(crate) mod init;
pub(crate) mod operating;
pub(crate) mod recipes;
pub(crate) mod start;
pub(crate) mod stripe;
