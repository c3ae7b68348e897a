//! Instants, windows of the calendar, the clock, and pauses between attempts.

pub mod backoff;
pub mod calendar;
pub mod clock;
pub mod time;
