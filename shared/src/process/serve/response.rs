//! The body of a response on its way to its client, dropped when the client takes nothing of it, or a whole one too slowly.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::connection::Connection;

/// Largest piece that is handed to an HTTP/2 stream: what it takes of an answer beyond the client's window stays in memory
/// until the client reads it, and with it the whole allocation that a piece is part of. So pieces are copied.
const PIECE: usize = 16 << 10;
/// The same on a connection on which no credential was accepted: strangers may leave many answers unread.
const PIECE_OF_STRANGERS: usize = 4 << 10;
/// Largest piece over HTTP/1, where nothing is copied: what was taken is counted in pieces.
const PIECE_OF_HTTP1: usize = 64 << 10;
/// Bytes a second that a client takes of a whole answer at least, after the time for which it may take nothing: a quarter of a
/// megabit. A whole answer stays in memory until it was taken. A stream, which keeps little, may go as slowly as it likes.
const LEAST_RATE: u64 = 32 << 10;

/// The part of a response that its body and the watch over its connection share.
pub(super) struct ResponseState {
    /// The time for which nothing of the body may be taken.
    pub(super) unread_bound: Duration,
    /// True over HTTP/1, where a connection carries one response at a time.
    pub(super) alone: bool,
    piece: usize,
    /// When it began, if all of it is there from its beginning.
    whole_since: Option<Instant>,
    body: Mutex<BodyState>,
}

struct BodyState {
    /// `None` after it was abandoned.
    body: Option<Body>,
    /// The rest of a piece that was too large.
    rest: Bytes,
    /// Bytes that the connection has asked for.
    taken: u64,
    /// Since when the connection has not asked for more; `None` while it waits for the handler.
    untaken_since: Option<Instant>,
}

impl ResponseState {
    pub(super) fn new(body: Body, watch: WatchedBodyOptions, trusted: bool) -> Self {
        let now = Instant::now();
        let whole_since = body.size_hint().exact().map(|_| now);
        let piece = match (watch.http2, trusted) {
            (false, _) => PIECE_OF_HTTP1,
            (true, false) => PIECE_OF_STRANGERS,
            (true, true) => PIECE,
        };
        let body = BodyState { body: Some(body), rest: Bytes::new(), taken: 0, untaken_since: Some(now) };
        let alone = !watch.http2;
        Self { unread_bound: watch.unread_bound, alone, piece, whole_since, body: Mutex::new(body) }
    }

    fn body(&self) -> MutexGuard<'_, BodyState> {
        // A body that panicked is not polled again.
        self.body.lock()
    }

    /// Since when it was taken too slowly, or not at all, if that is too long.
    pub(super) fn overdue_since(&self, now: Instant) -> Option<Instant> {
        let state = self.body();
        let since = state.untaken_since?;
        let elapsed = |since| now.saturating_duration_since(since);
        let allowed = self.unread_bound + Duration::from_secs(state.taken / LEAST_RATE);
        let slow = self.whole_since.is_some_and(|began| elapsed(began) >= allowed);
        (slow || elapsed(since) >= self.unread_bound).then_some(since)
    }

    /// Drops what was not taken; the client finds its answer broken off.
    pub(super) fn abandon(&self) {
        let mut state = self.body();
        let left = (state.body.take(), std::mem::take(&mut state.rest));
        // Effects of dropping a body happen outside of the lock.
        drop(state);
        drop(left);
    }

    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut guard = self.body();
        let state = &mut *guard;
        let Some(body) = &mut state.body else {
            return Poll::Ready(Some(Err(axum::Error::new(Unread))));
        };
        if !state.rest.is_empty() {
            let rest = std::mem::take(&mut state.rest);
            state.untaken_since = Some(Instant::now());
            return Poll::Ready(Some(Ok(Frame::data(self.cut(state, rest, true)))));
        }
        let polled = Pin::new(body).poll_frame(context);
        state.untaken_since = polled.is_ready().then(Instant::now);
        polled.map_ok(|frame| frame.map_data(|data| self.cut(state, data, false)))
    }

    /// The first piece of `data`, which may be a part of a larger one; the rest waits.
    fn cut(&self, state: &mut BodyState, mut data: Bytes, part: bool) -> Bytes {
        let larger = data.len() > self.piece;
        if larger {
            state.rest = data.split_off(self.piece);
        }
        state.taken += data.len() as u64;
        if !self.alone && (larger || part) { Bytes::copy_from_slice(&data) } else { data }
    }
}

/// The answer broke off, since its client took nothing of it for too long, or too little.
#[derive(Debug, thiserror::Error)]
#[error("the client took the answer too slowly")]
struct Unread;

/// Counts a response on its connection until its body and every piece of it are dropped: written, or given up.
struct Untaken {
    response: Arc<ResponseState>,
    connection: Arc<Connection>,
}

impl Drop for Untaken {
    fn drop(&mut self) {
        self.connection.end_response(&self.response);
    }
}

/// A piece of a body until it is written. A full one over HTTP/2 weighs as much as a request.
pub(super) struct Piece {
    data: Bytes,
    heavy: bool,
    of: Arc<Untaken>,
}

impl Piece {
    fn new(data: Bytes, of: Arc<Untaken>) -> Self {
        let heavy = !of.response.alone && data.len() >= of.response.piece;
        if heavy {
            of.connection.begin_piece();
        }
        Self { data, heavy, of }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // The transport may hold locks of its own here, so that nothing but the connection's count is touched.
        if self.heavy {
            self.of.connection.end_piece();
        }
    }
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.data.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.data.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.data.advance(count);
    }
}

/// The body as the connection takes it.
pub(super) struct WatchedBody(Arc<Untaken>);

/// The watch over the body of a response.
#[derive(Clone, Copy)]
pub(super) struct WatchedBodyOptions {
    /// The time for which nothing of it may be taken.
    pub(super) unread_bound: Duration,
    /// It goes over HTTP/2, which keeps pieces until the client's window takes them.
    pub(super) http2: bool,
}

impl WatchedBody {
    pub(super) fn new(response: Arc<ResponseState>, connection: Arc<Connection>) -> Self {
        Self(Arc::new(Untaken { response, connection }))
    }
}

impl HttpBody for WatchedBody {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        let polled = self.0.response.poll_frame(context);
        // Counted after the response's lock was released: too much of it closes connections.
        polled.map_ok(|frame| frame.map_data(|data| Piece::new(data, self.0.clone())))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.response.body();
        state.rest.is_empty() && state.body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.0.response.body();
        let rest = state.rest.len() as u64;
        let Some(hint) = state.body.as_ref().map(HttpBody::size_hint) else { return SizeHint::default() };
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
        self.0.response.abandon();
    }
}

#[cfg(test)]
mod tests;
