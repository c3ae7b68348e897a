//! A stream that reports its reads and writes to an observer.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Observes the reads and writes of a stream.
pub trait StreamWatch {
    /// Called after a read, with the bytes that the read returned. If the read has to wait, `bytes` is empty. If this
    /// returns an error, the read fails.
    fn after_read(&mut self, context: &mut Context<'_>, waits: bool, bytes: &[u8]) -> io::Result<()>;

    fn before_write(&mut self) {}

    /// Called after a write. `_waits` says whether the write has to wait.
    fn after_write(&mut self, _waits: bool) {}
}

pub struct WatchedStream<S, W> {
    stream: S,
    watch: W,
}

impl<S, W> WatchedStream<S, W> {
    pub const fn new(stream: S, watch: W) -> Self {
        Self { stream, watch }
    }
}

impl<S: AsyncRead + Unpin, W: StreamWatch + Unpin> AsyncRead for WatchedStream<S, W> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, watch } = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(stream).poll_read(context, buffer);
        let watched = watch.after_read(context, read.is_pending(), &buffer.filled()[before..]);
        read.map(|read| read.and(watched))
    }
}

impl<S: AsyncWrite + Unpin, W: StreamWatch + Unpin> AsyncWrite for WatchedStream<S, W> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, watch } = self.get_mut();
        watch.before_write();
        let written = Pin::new(stream).poll_write(context, bytes);
        watch.after_write(written.is_pending());
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { stream, watch } = self.get_mut();
        watch.before_write();
        let written = Pin::new(stream).poll_write_vectored(context, slices);
        watch.after_write(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl<S: Connection, W> Connection for WatchedStream<S, W> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}
