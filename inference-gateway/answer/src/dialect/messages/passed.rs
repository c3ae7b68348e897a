//! Keeps what is needed to end a message whose events are passed on unchanged.

use bytes::BytesMut;

use super::{MessagesStream, STOP_EVENT, put_usage};
use crate::{
    dialect::{
        passed::{PassedWriter, UsageOf},
        turn::{Block, BlockContent},
    },
    stream::Original,
};

impl PassedWriter for MessagesStream {
    fn pass(&mut self, event: &Original<'_>) {
        match event.kind {
            "content_block_start" => self.open = event.index.and_then(|index| index.get().parse().ok()),
            "content_block_stop" => self.open = None,
            _ => {}
        }
    }

    fn close_passed(&mut self, out: &mut BytesMut) {
        // A thought gets no signature, since only the vendor can make one.
        if let Some(index) = self.open.take() {
            let block = Block { index, content: BlockContent::Text };
            Self::block_event("content_block_stop", &block, |_| {}, out);
        }
    }

    fn behind(&self) -> &'static str {
        STOP_EVENT
    }

    fn usage(&self) -> UsageOf {
        put_usage
    }
}
