//! Foundation of the end-to-end tests, the measurements and the attacks: a scripted upstream, and a harness that runs
//! the real programs.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "this is all test code: what cannot be as expected fails the test that asked for it"
)]

pub mod garbage;
pub mod harness;
pub mod upstream;
