//! State of a reader of a response's events.

use raw_json::RawString;

use crate::reader::progress::Progress;

/// Empty line between two parts of a summary, as a JSON string.
pub(super) const EMPTY_LINE: RawString<'_> = RawString::trusted(r#""\n\n""#);
/// Reader of a response's events.
#[derive(Default)]
pub(crate) struct ResponsesReader {
    pub(in crate::reader) progress: Progress,
    pub(super) state: ResponseState,
    pub(super) before: ResponseState,
}

/// State that the last event may have changed, so that it can be undone.
#[derive(Clone, Copy, Default)]
pub(super) struct ResponseState {
    /// Index of the last item with reasoning, and whether its summary is shown rather than its content. Servers that
    /// send both send the same thoughts twice.
    pub(super) reasoning: Option<(u64, bool)>,
    /// Index of the last item.
    pub(super) item: u64,
}
