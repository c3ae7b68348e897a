//! The shipped model: its name and its description.

/// Name under which the shipped model is served.
pub const NAME: &str = "tiny-demo";
/// Abilities and limits of the shipped model, in one sentence.
pub const DESCRIPTION: &str = "A demo model of 2.6 million parameters, trained from templates to try the service with: it is \
                               no assistant, and most of what it says beyond them is wrong.";
