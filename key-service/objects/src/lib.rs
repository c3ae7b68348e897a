//! Objects of the management API as JSON: settings that are read and checked, and objects that are shown.
//!
//! The management API and the command line read and write the same JSON, by the same table of fields.

mod settings;
mod shown;
pub mod value;

pub use settings::{settings, settings_among};
pub use shown::{Shown, own_group, with_group, with_secret};

#[cfg(test)]
mod fuzz;
