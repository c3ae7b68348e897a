//! The shipped model: its name and its description.

/// Name under which the shipped model is served.
pub const NAME: &str = "tiny-demo";
/// Abilities and limits of the shipped model, in one sentence.
pub const DESCRIPTION: &str = "A demo model of 2.6 million parameters, trained on templates, for trying the service. It is not an \
                               assistant: beyond its templates, most of what it says is wrong.";
