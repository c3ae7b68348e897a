//! Types and infrastructure that both services share.
//!
//! Types here hold everywhere: an amount is an integer of nano-USD, a key has a class and a
//! checksum, an error has one code and one status. Decisions about spending are made elsewhere.

#[cfg(feature = "process")]
pub mod admission;
pub mod backoff;
pub mod calendar;
pub mod catalog;
pub mod clock;
#[cfg(feature = "process")]
pub mod current;
pub mod error;
pub mod ids;
pub mod json;
pub mod key;
pub mod money;
pub mod network;
pub mod private_files;
#[cfg(feature = "process")]
pub mod process;
pub mod rates;
pub mod refusal;
#[cfg(feature = "rpc")]
pub mod rpc;
pub mod secret;
#[cfg(feature = "rpc")]
pub mod spool;
#[cfg(feature = "rpc")]
pub mod spool_list;
pub mod table;
pub mod text;
pub mod time;
pub mod tokens;
pub mod wire;
