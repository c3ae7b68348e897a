//! The body of a response on its way to its client, dropped when the client takes nothing of it.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::connection::Connection;

/// Largest piece that is handed to an HTTP/2 stream: what it takes of an answer beyond the client's window stays in memory
/// until the client reads it, and with it the whole allocation that a piece is part of.
const PIECE: usize = 16 << 10;

/// The part of a response that its body and the watch over its connection share.
pub(super) struct ResponseState {
    /// The time for which nothing of the body may be taken.
    pub(super) unread_bound: Duration,
    body: Mutex<BodyState>,
}

struct BodyState {
    /// `None` after it was abandoned.
    body: Option<Body>,
    /// Since when the connection has not asked for more; `None` while it waits for the handler.
    untaken_since: Option<Instant>,
}

impl ResponseState {
    pub(super) fn new(body: Body, unread_bound: Duration) -> Self {
        let body = BodyState { body: Some(body), untaken_since: Some(Instant::now()) };
        Self { unread_bound, body: Mutex::new(body) }
    }

    fn body(&self) -> MutexGuard<'_, BodyState> {
        // A body that panicked is not polled again.
        self.body.lock()
    }

    /// Since when nothing was taken of it, if that is too long.
    pub(super) fn overdue_since(&self, now: Instant) -> Option<Instant> {
        let since = self.body().untaken_since?;
        (now.saturating_duration_since(since) >= self.unread_bound).then_some(since)
    }

    /// Drops what was not taken; the client finds its answer broken off.
    pub(super) fn abandon(&self) {
        let body = self.body().body.take();
        drop(body);
    }
}

/// The answer broke off, since its client took nothing of it for too long.
#[derive(Debug, thiserror::Error)]
#[error("the client took nothing of the answer for too long")]
struct Unread;

/// The body as the connection takes it.
pub(super) struct WatchedBody {
    response: Arc<ResponseState>,
    connection: Arc<Connection>,
    small_pieces: bool,
    /// The rest of a piece that was too large.
    rest: Bytes,
}

impl WatchedBody {
    pub(super) const fn new(
        response: Arc<ResponseState>,
        connection: Arc<Connection>,
        small_pieces: bool,
    ) -> Self {
        Self { response, connection, small_pieces, rest: Bytes::new() }
    }

    /// A piece of `data` that is small enough; the rest waits.
    fn piece(&mut self, mut data: Bytes) -> Frame<Bytes> {
        if !self.small_pieces || data.len() <= PIECE {
            return Frame::data(data);
        }
        let piece = Bytes::copy_from_slice(&data[..PIECE]);
        self.rest = data.split_off(PIECE);
        Frame::data(piece)
    }
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let response = self.response.clone();
        let mut state = response.body();
        let Some(body) = &mut state.body else {
            return Poll::Ready(Some(Err(axum::Error::new(Unread))));
        };
        if !self.rest.is_empty() {
            state.untaken_since = Some(Instant::now());
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(self.piece(rest))));
        }
        let polled = Pin::new(body).poll_frame(context);
        state.untaken_since = polled.is_ready().then(Instant::now);
        polled.map_ok(|frame| match frame.into_data() {
            Ok(data) => self.piece(data),
            Err(trailers) => trailers,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.response.body().body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.response.body().body.as_ref().map(HttpBody::size_hint);
        let rest = self.rest.len() as u64;
        let Some(hint) = hint else { return SizeHint::default() };
        let mut with_rest = SizeHint::new();
        with_rest.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            with_rest.set_upper(upper + rest);
        }
        with_rest
    }
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.connection.end_response(&self.response);
        self.response.abandon();
    }
}
