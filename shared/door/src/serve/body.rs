//! Bodies of responses on their way to the client. A body counts as load until it is written. It is dropped if the
//! client stops reading it, or takes too long over an answer that is not streamed.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, HttpBody};
use bytes::{Buf, Bytes};
use hyper::body::{Frame, SizeHint};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::connection::{Connection, Overdue, RequestGuard};

/// Size of the largest piece of an HTTP/2 stream. Pieces for which the client's window has no space stay in memory.
/// Each would keep its whole underlying allocation there, so pieces are copied.
const PIECE: usize = 16 << 10;
/// Size of the largest HTTP/2 piece on an unauthenticated connection. It is small, because the client may leave many
/// answers unread.
const UNAUTHENTICATED_PIECE: usize = 4 << 10;
/// Size of the largest piece in HTTP/1. There, pieces are counted but not copied.
const PIECE_OF_HTTP1: usize = 64 << 10;
/// Number of bytes per second (a quarter of a megabit) at which a client must read a whole answer. At first, there is a
/// time during which the client need not read. A whole answer stays in memory until all of it is read. A stream needs
/// little memory, so it may be read at any speed.
const LEAST_RATE: u64 = 32 << 10;
/// If a connection has not asked for more of a stream for this long, the stream is detached. In the connection's task,
/// the stream and its upstream would come to a stop.
const DETACH_AFTER: Duration = Duration::from_secs(1);

/// Extension of a response: what happens if the client does not read the response.
#[derive(Clone)]
pub struct Unread {
    /// How long the client may leave the response unread. This replaces the limit of the port.
    pub bound: Duration,
    /// A stream that can go on by itself while the client reads nothing.
    pub stream: Option<Arc<dyn Detach>>,
}

/// A stream that runs in the task of its connection: it makes progress whenever the connection asks for more.
pub trait Detach: Send + Sync {
    /// Moves the stream to a task of its own. Called when the connection no longer asks for more.
    fn detach(&self);
}

/// The responses of a connection that are not fully written. They are watched, because clients may read nothing.
#[derive(Default)]
pub(super) struct Responses(Mutex<Vec<Arc<Response>>>);

impl Responses {
    /// Makes the body of a response. It is watched until the client has read everything.
    pub(super) fn respond(
        self: &Arc<Self>,
        request: RequestGuard,
        body: Body,
        options: BodyOptions,
    ) -> WatchedBody {
        let response = Arc::new(Response::new(request.respond(), body, options));
        self.0.lock().push(response.clone());
        WatchedBody(Arc::new(Untaken { response, responses: self.clone() }))
    }

    /// Returns the longest time for which a write on the connection may wait: `unread`, or more if one of the responses
    /// allows more.
    pub(super) fn longest_wait(&self, unread: Duration) -> Duration {
        self.0.lock().iter().map(|response| response.unread.bound).fold(unread, Duration::max)
    }

    /// Checks every response. Overdue responses are dropped: this frees their memory, while other responses on the
    /// connection continue. Over HTTP/1, the connection ends. Streams for which the connection no longer asks are
    /// detached. Returns when to check again, if that is necessary.
    pub(super) fn look(&self, now: Instant) -> Result<Option<Instant>, Overdue> {
        // This lock is not held any longer, because each response has a lock of its own, which is held while its body
        // is polled.
        let responses = self.0.lock().clone();
        let (mut next, mut ends) = (None, false);
        for response in responses {
            match response.look(now) {
                Ok(at) => next = [next, at].into_iter().flatten().min(),
                Err(since) => {
                    tracing::info!("a client reads its answer too slowly; dropping the answer");
                    response.close(since);
                    response.abandon();
                    ends |= response.is_alone;
                }
            }
        }
        if ends { Err(Overdue::Unread) } else { Ok(next) }
    }
}

/// A response. Its body and the watch over it share this state.
struct Response {
    connection: Arc<Connection>,
    unread: Unread,
    /// True over HTTP/1, where a connection carries one response at a time.
    is_alone: bool,
    piece: usize,
    /// The time at which the answer began, if its length was known from the start.
    whole_since: Option<Instant>,
    /// False as soon as the response has ended or was abandoned.
    is_open: AtomicBool,
    is_detached: AtomicBool,
    body: Mutex<BodyState>,
}

struct BodyState {
    /// `None` if the response was abandoned.
    body: Option<Body>,
    /// The part of a piece that was too large to be sent at once.
    rest: Bytes,
    /// Number of bytes that the connection has taken.
    taken: u64,
    /// Time at which the connection received the last piece, if it has not asked for more since then; `None` while the
    /// connection waits for the handler.
    untaken_since: Option<Instant>,
}

impl Response {
    fn new(connection: Arc<Connection>, body: Body, options: BodyOptions) -> Self {
        let now = Instant::now();
        let whole_since = body.size_hint().exact().map(|_| now);
        let piece = match (options.http2, connection.is_trusted()) {
            (false, _) => PIECE_OF_HTTP1,
            (true, false) => UNAUTHENTICATED_PIECE,
            (true, true) => PIECE,
        };
        let body = BodyState { body: Some(body), rest: Bytes::new(), taken: 0, untaken_since: Some(now) };
        Self {
            connection,
            unread: options.unread,
            is_alone: !options.http2,
            piece,
            whole_since,
            is_open: AtomicBool::new(true),
            is_detached: AtomicBool::new(false),
            body: Mutex::new(body),
        }
    }

    fn body(&self) -> MutexGuard<'_, BodyState> {
        // A body that panicked must not be polled again.
        self.body.lock()
    }

    /// Returns when to check the response again, if that is necessary. Fails if the client reads too slowly or does not
    /// read. The error is the time since which the connection has not asked for more.
    fn look(&self, now: Instant) -> Result<Option<Instant>, Instant> {
        let state = self.body();
        let (since, taken) = (state.untaken_since, state.taken);
        drop(state);
        let bound = self.unread.bound;
        let mut next = None;
        if let Some(since) = since {
            let whole = self.whole_since.map(|began| began + bound + Duration::from_secs(taken / LEAST_RATE));
            let deadline = whole.map_or(since + bound, |whole| whole.min(since + bound));
            if deadline <= now {
                return Err(since);
            }
            next = Some(deadline);
        }
        Ok([next, self.detach_in_time(since, now)].into_iter().flatten().min())
    }

    /// Detaches the stream if the connection has not asked for more for [`DETACH_AFTER`]. Otherwise, returns when to
    /// check again.
    fn detach_in_time(&self, untaken_since: Option<Instant>, now: Instant) -> Option<Instant> {
        let stream = self.unread.stream.as_ref().filter(|_| !self.is_detached.load(Ordering::Relaxed))?;
        let at = match untaken_since {
            Some(since) => since + DETACH_AFTER,
            // The connection waits for the stream. Over HTTP/1, the stream need not be checked until a write waits.
            // Over HTTP/2, no write waits when the client's window is closed, so the stream is checked regularly.
            None if self.is_alone && self.connection.write_waits_since().is_none() => return None,
            None => now + DETACH_AFTER,
        };
        if at > now {
            return Some(at);
        }
        self.is_detached.store(true, Ordering::Relaxed);
        stream.detach();
        None
    }

    /// Records that the response ended at this instant, or that it has not been read since then. Only the first call
    /// has an effect.
    fn close(&self, since: Instant) {
        if self.is_open.swap(false, Ordering::Relaxed) {
            self.connection.end_response(since);
        }
    }

    /// Drops the part of the response that was not read. The client sees that the answer breaks off.
    pub(super) fn abandon(&self) {
        let mut state = self.body();
        let left = (state.body.take(), std::mem::take(&mut state.rest));
        // Dropping the body may run other code, so the lock is released first.
        drop(state);
        drop(left);
    }

    fn poll_frame(&self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut guard = self.body();
        let state = &mut *guard;
        let Some(body) = &mut state.body else {
            return Poll::Ready(Some(Err(axum::Error::new(TooSlow))));
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

    /// Splits the first piece off `data`, and keeps what is left for later. `part` means that `data` is itself the rest
    /// of a larger piece.
    fn cut(&self, state: &mut BodyState, mut data: Bytes, part: bool) -> Bytes {
        let larger = data.len() > self.piece;
        if larger {
            state.rest = data.split_off(self.piece);
        }
        state.taken += data.len() as u64;
        if !self.is_alone && (larger || part) { Bytes::copy_from_slice(&data) } else { data }
    }
}

/// Error that ends a body because the client read it too slowly, or did not read it for too long.
#[derive(Debug, thiserror::Error)]
#[error("the client read the answer too slowly")]
struct TooSlow;

/// Keeps a response counted on its connection until the body and all pieces are dropped, whether they were written or
/// not.
struct Untaken {
    response: Arc<Response>,
    responses: Arc<Responses>,
}

impl Drop for Untaken {
    fn drop(&mut self) {
        let Self { response, responses } = self;
        responses.0.lock().retain(|other| !Arc::ptr_eq(other, response));
        response.close(Instant::now());
        response.connection.unload(1);
    }
}

/// A piece of a body, until it is written. A full HTTP/2 piece has the same weight as a request.
pub(super) struct Piece {
    data: Bytes,
    heavy: bool,
    of: Arc<Untaken>,
}

impl Piece {
    fn new(data: Bytes, of: Arc<Untaken>) -> Self {
        let heavy = !of.response.is_alone && data.len() >= of.response.piece;
        if heavy {
            of.response.connection.load(1);
        }
        Self { data, heavy, of }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // The transport may hold locks here. So this only changes the count of the connection.
        if self.heavy {
            self.of.response.connection.unload(1);
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

/// The body of a response that the connection polls.
pub(super) struct WatchedBody(Arc<Untaken>);

pub(super) struct BodyOptions {
    pub(super) unread: Unread,
    /// True over HTTP/2. There, pieces stay in memory until the client's window has space for them.
    pub(super) http2: bool,
}

impl HttpBody for WatchedBody {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        let polled = self.0.response.poll_frame(context);
        // The piece is counted only after the response's lock is released, because too much weight closes connections.
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
