//! Meters a stream. A meter takes the upstream's bytes. It returns the client's bytes, requests for more tokens, and
//! how the stream ended.
//!
//! No event is delivered unless the granted tokens cover it. The bill does not depend on how the bytes are split.

mod folded;
mod granted;
mod known;
mod meter;
mod output;
mod pace;
mod stream_end;
mod usage;

pub use folded::{FoldEnd, FoldMeter};
pub use granted::{GRANT_TOKENS, GrantedTokens};
pub use meter::StreamMeter;
pub use output::Output;
pub use pace::{Pace, PaceMeter};
pub use stream_end::StreamEnd;
pub use usage::{UsageBounds, UsageCounter, UsageScope};

#[cfg(test)]
mod tests;
