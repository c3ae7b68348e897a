//! Measurements of the real programs, and attacks on them, on the loopback interface.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "this is all test code: what cannot be as expected fails the test that asked for it"
)]

pub mod attack;
pub mod measure;
pub mod overshoot;
pub mod prove;
