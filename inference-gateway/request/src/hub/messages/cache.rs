//! Breakpoints for the vendor's prompt cache. The vendor caches nothing without breakpoints.

/// Member of the block that ends a part to be cached.
const CACHE_CONTROL: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// Where the cached parts of a body end: each at the closing brace of a block. The API accepts four breakpoints. They
/// are set after the tools, after the system prompt, and after the last two turns of the user, so that the next request
/// finds in the cache what this request wrote.
#[derive(Default)]
pub(super) struct Breakpoints(Vec<usize>);

impl Breakpoints {
    /// Adds the end of the tools.
    pub(super) fn after_tools(&mut self, brace: usize) {
        self.0.push(brace);
    }

    /// Adds the end of the system prompt.
    pub(super) fn after_system(&mut self, brace: usize) {
        self.0.push(brace);
    }

    /// Adds the ends of the last two turns.
    pub(super) fn after_turns(&mut self, braces: [Option<usize>; 2]) {
        self.0.extend(braces.into_iter().flatten());
    }

    /// Writes the breakpoints into the body. The last breakpoint is written first, so that earlier positions stay
    /// valid.
    pub(super) fn write(mut self, out: &mut String) {
        self.0.sort_unstable();
        for brace in self.0.into_iter().rev() {
            out.insert_str(brace, CACHE_CONTROL);
        }
    }
}
