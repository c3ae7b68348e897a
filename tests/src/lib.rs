//! Support of the end-to-end tests and the benchmark: a scripted upstream, a harness around the real programs, and a
//! load generator.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "this is all test code: what cannot be as expected fails the test that asked for it"
)]

pub mod bench;
pub mod harness;
pub mod upstream;
