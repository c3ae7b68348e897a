//! Instants, calendar windows, the clock, and back-off.

pub mod backoff;
pub mod calendar;
pub mod clock;
pub mod time;
