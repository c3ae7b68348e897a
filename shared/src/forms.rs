//! Forms of values: JSON over the wire, and CBOR in records.

pub mod json;
pub mod stored;
