//! Reads the settings of the management API's objects from JSON, checks them, and writes objects as JSON.
//!
//! The management API and the command line read and write the same JSON, from the same table of fields.

mod json;
mod operators;
mod settings;
pub mod value;

pub use json::{Shown, own_group, with_group, with_secret};
pub use operators::{account_object, management_key_object, member_object, payment_object};
pub use settings::{settings, settings_among};

#[cfg(test)]
mod fuzz;
