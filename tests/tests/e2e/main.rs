//! The real binary through its public doors.

#![expect(clippy::unwrap_used, reason = "what cannot be as expected fails the test")]

mod upstream;
