//! Foundation of the end-to-end tests and the benchmark: a scripted upstream, a harness around the real programs, a load
//! generator, and attacks.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "this is all test code: what cannot be as expected fails the test that asked for it"
)]

pub mod attack;
pub mod bench;
pub mod harness;
pub mod upstream;
