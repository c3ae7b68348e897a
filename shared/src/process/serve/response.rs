//! A response's body on the way to the client, dropped when the client stops taking, or takes a whole answer too
//! slowly.

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

/// Largest piece handed to an HTTP/2 stream. A stream keeps pieces beyond the client's window in memory, and with a
/// piece the whole allocation that it is part of; so pieces are copied.
const PIECE: usize = 16 << 10;
/// Largest HTTP/2 piece on an unauthenticated connection, whose client may leave many answers unread.
const PIECE_OF_STRANGERS: usize = 4 << 10;
/// Largest piece over HTTP/1, where pieces are counted but not copied.
const PIECE_OF_HTTP1: usize = 64 << 10;
/// Least bytes a second that a client takes of a whole answer, once `unread_bound` has passed: a quarter of a
/// megabit. A whole answer stays in memory until the client took all; a stream, which keeps little, may go at any
/// speed.
const LEAST_RATE: u64 = 32 << 10;

/// State of a response, shared by the body and the watch over the connection.
pub(super) struct ResponseState {
    /// The time for which nothing of the body may be taken.
    pub(super) unread_bound: Duration,
    /// True over HTTP/1, where a connection carries a single response at a time.
    pub(super) alone: bool,
    piece: usize,
    /// Start of an answer that is whole from the beginning.
    whole_since: Option<Instant>,
    body: Mutex<BodyState>,
}

struct BodyState {
    /// `None` after the response was abandoned.
    body: Option<Body>,
    /// The rest of a piece that was too large.
    rest: Bytes,
    /// Bytes that the connection has asked for.
    taken: u64,
    /// Time of the connection's last demand; `None` while the handler produces.
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

    /// Time of the last demand, if the body is taken too slowly or not at all.
    pub(super) fn overdue_since(&self, now: Instant) -> Option<Instant> {
        let state = self.body();
        let since = state.untaken_since?;
        let elapsed = |since| now.saturating_duration_since(since);
        let allowed = self.unread_bound + Duration::from_secs(state.taken / LEAST_RATE);
        let slow = self.whole_since.is_some_and(|began| elapsed(began) >= allowed);
        (slow || elapsed(since) >= self.unread_bound).then_some(since)
    }

    /// Drops the untaken rest; the client finds the answer broken off.
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

    /// First piece of `data`; the rest waits. A `part` continues a larger piece.
    fn cut(&self, state: &mut BodyState, mut data: Bytes, part: bool) -> Bytes {
        let larger = data.len() > self.piece;
        if larger {
            state.rest = data.split_off(self.piece);
        }
        state.taken += data.len() as u64;
        if !self.alone && (larger || part) { Bytes::copy_from_slice(&data) } else { data }
    }
}

/// Error of a body whose client took nothing for too long, or too little.
#[derive(Debug, thiserror::Error)]
#[error("the client took the answer too slowly")]
struct Unread;

/// Counts a response on the connection until body and pieces are dropped: written, or given up.
struct Untaken {
    response: Arc<ResponseState>,
    connection: Arc<Connection>,
}

impl Drop for Untaken {
    fn drop(&mut self) {
        self.connection.end_response(&self.response);
    }
}

/// Piece of a body until written. A full HTTP/2 piece weighs as much as a request.
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
        // The transport may hold locks here, so only the connection's count is touched.
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

/// Body of a response, as polled by the connection.
pub(super) struct WatchedBody(Arc<Untaken>);

/// The watch over the body of a response.
#[derive(Clone, Copy)]
pub(super) struct WatchedBodyOptions {
    /// Longest time for which the client may take nothing of the body.
    pub(super) unread_bound: Duration,
    /// True over HTTP/2, where pieces stay in memory until the client's window has space.
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
        // Counted after the response's lock is released: too much weight closes connections.
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
