//! A transport that reports writes without progress, and reads that find nothing.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::coop::has_budget_remaining,
};

use super::connection::Connection;

/// A stream that reports to the connection.
pub(super) struct ReportingStream<S> {
    inner: S,
    connection: Arc<Connection>,
}

impl<S> ReportingStream<S> {
    pub(super) const fn new(inner: S, connection: Arc<Connection>) -> Self {
        Self { inner, connection }
    }

    fn note<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.connection.note_write(waits(&written));
        written
    }
}

/// Returns whether the peer is to blame for the wait, rather than the task's own turn.
fn waits<T>(polled: &Poll<T>) -> bool {
    polled.is_pending() && has_budget_remaining()
}

impl<S: AsyncRead + Unpin> AsyncRead for ReportingStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if waits(&read) {
            self.connection.note_silence();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReportingStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, pieces);
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
