//! Fuzz target for upstreams' errors.

use shared_fuzz::{Examples, Input, fuzz};

use crate::error::UpstreamError;

/// A client reads neither addresses nor the upstream's name for the model, and the sizes are plausible.
#[test]
fn upstream_errors() {
    fuzz(&Examples::folder("upstream-errors"), |input: &Input| {
        let error = UpstreamError::read(input.bytes());
        let status = [400, 401, 404, 413, 422, 429, 500, 503][input.choice(8)];
        let _ = error.verdict(status);
        if let Some(words) = error.for_client(status, "8192") {
            assert!(status < 500 && !words.is_empty());
            assert!(
                !names(&words, "8192") && !words.contains("://") && !words.contains("sk-proj-"),
                "{words}"
            );
        }
        if let Some(sizes) = error.context_sizes() {
            assert!(sizes.most > 0 && sizes.prompt.is_none_or(|prompt| prompt >= sizes.most), "{sizes:?}");
        }
        if let Some(limit) = error.refused_limit(status) {
            let beside = [0, 1000, u64::MAX].map(|prompt| limit.room_beside(prompt));
            assert!(beside[0] >= beside[1] && beside[1] >= beside[2], "{limit:?}");
        }
    });
}

/// Returns whether a text contains this name as a word.
fn names(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric()).any(|word| word == name)
}
