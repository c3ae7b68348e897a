//! Terms that both services use, and how they look on the wire.
//!
//! The types here hold everywhere: an amount is an integer of nano-USD, a key has a class and a checksum, an error has
//! one code and one status. Decisions about spending are made elsewhere.

pub mod backoff;
pub mod calendar;
pub mod clock;
pub mod error;
pub mod generation;
pub mod ids;
pub mod json;
pub mod key;
pub mod money;
pub mod network;
pub mod private_files;
pub mod rates;
pub mod refusal;
pub mod secret;
pub mod table;
pub mod text;
pub mod time;
pub mod tokens;
pub mod wire;

#[cfg(test)]
mod fuzz;
