//! Terms that both services share, with their wire formats.
//!
//! These types mean the same everywhere: an amount is an integer of nano-USD, a key has a class and a checksum, an
//! error has one code and one status. Spending decisions are made elsewhere.

mod call;
mod credential;
pub mod describe;
pub mod error;
mod forms;
mod host;
pub mod ids;
pub mod money;
mod names;
mod schema;
pub mod text;
mod timing;
pub mod tokens;
pub mod wire;

pub use call::{generation, rates, refusal};
pub use credential::{key, secret};
pub use forms::{json, stored};
pub use host::{bounded_file, network, private_files, served, table};
pub use timing::{backoff, calendar, clock, time};

#[cfg(test)]
mod fuzz;
