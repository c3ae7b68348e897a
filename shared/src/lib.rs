//! The terms that both services share, and the formats in which they are sent and stored.
//!
//! These types mean the same everywhere: an amount is a whole number of nano-USD, a key has a class and a checksum, an
//! error has one code and one status. Code that decides about spending is in other crates.

/// A model call: how it was requested and how it went, reasons to refuse it, and the state of its rate limits.
mod call {
    pub mod generation;
    pub mod rates;
    pub mod refusal;
}
mod credential {
    pub mod key;
    pub mod secret;
}
pub mod describe;
pub mod error;
/// Forms of values: JSON over the wire, and CBOR in records.
mod forms {
    pub mod json;
    pub mod stored;
}
/// The machine on which a program runs: networks, files and the terminal.
mod host {
    pub mod bounded_file;
    pub mod network;
    pub mod private_files;
    pub mod served;
    pub mod table;
}
pub mod ids;
pub mod money;
mod names;
mod schema;
mod stored_as_text;
pub mod text;
/// Instants, calendar windows, the clock, and back-off.
mod timing {
    pub mod backoff;
    pub mod calendar;
    pub mod clock;
    pub mod time;
}
pub mod tokens;
pub mod wire;

pub use call::{generation, rates, refusal};
pub use credential::{key, secret};
pub use forms::{json, stored};
pub use host::{bounded_file, network, private_files, served, table};
pub use timing::{backoff, calendar, clock, time};

#[cfg(test)]
mod fuzz;
