//! One connection: two directions, each a queue of bytes with the times at which they arrive.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::Network;

/// One end of a connection.
pub(crate) struct NetworkWire {
    network: Weak<Network>,
    incoming: Arc<Direction>,
    outgoing: Arc<Direction>,
    arrival: Option<Pin<Box<Sleep>>>,
}

/// Both directions of a connection, as the network knows them.
pub(super) struct Ends(Weak<Direction>, Weak<Direction>);

struct Direction {
    from: String,
    to: String,
    state: Mutex<Underway>,
}

#[derive(Default)]
struct Underway {
    pieces: VecDeque<(Instant, Bytes)>,
    /// Time at which the end arrives behind all pieces.
    closed: Option<Instant>,
    /// The reader's end is broken, and the writer's.
    broken: (bool, bool),
    reader: Option<Waker>,
}

impl Underway {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// Makes a connection: the ends of both places, and the network's own.
pub(super) fn connection(network: &Arc<Network>, near: &str, far: &str) -> (NetworkWire, NetworkWire, Ends) {
    let direction = |from: &str, to: &str| {
        Arc::new(Direction { from: from.to_owned(), to: to.to_owned(), state: Mutex::default() })
    };
    let (there, back) = (direction(near, far), direction(far, near));
    let ends = Ends(Arc::downgrade(&there), Arc::downgrade(&back));
    let wire = |incoming: &Arc<Direction>, outgoing: &Arc<Direction>| NetworkWire {
        network: Arc::downgrade(network),
        incoming: incoming.clone(),
        outgoing: outgoing.clone(),
        arrival: None,
    };
    (wire(&back, &there), wire(&there, &back), ends)
}

impl Ends {
    fn directions(&self) -> impl Iterator<Item = Arc<Direction>> {
        [self.0.upgrade(), self.1.upgrade()].into_iter().flatten()
    }

    pub(super) fn is_over(&self) -> bool {
        self.directions().next().is_none()
    }

    pub(super) fn is_at(&self, place: &str) -> bool {
        self.directions().any(|direction| direction.from == place || direction.to == place)
    }

    pub(super) fn is_between(&self, one: &str, other: &str) -> bool {
        self.is_at(one) && self.is_at(other)
    }

    /// Breaks both ends.
    pub(super) fn end(&self) {
        for direction in self.directions() {
            let mut state = direction.state.lock();
            state.broken = (true, true);
            state.wake();
        }
    }

    /// Breaks the end of a process that is gone. The other end hears nothing any more.
    pub(super) fn end_at(&self, place: &str) {
        for direction in self.directions() {
            let mut state = direction.state.lock();
            if direction.to == place {
                state.broken.0 = true;
            } else {
                state.broken.1 = true;
                state.pieces.clear();
            }
            state.wake();
        }
    }
}

impl AsyncRead for NetworkWire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let Some(network) = self.network.upgrade() else { return Poll::Pending };
            let incoming = self.incoming.clone();
            // Before the lock of this direction, since the network breaks connections under its own.
            let cut_until = network.cut_until(&incoming.from, &incoming.to);
            let mut state = incoming.state.lock();
            if state.broken.0 {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            let now = Instant::now();
            let next = match (state.pieces.front(), state.closed) {
                (Some((arrives, _)), _) => (*arrives).max(cut_until),
                (None, Some(arrives)) => arrives.max(cut_until),
                (None, None) => {
                    state.reader = Some(context.waker().clone());
                    return Poll::Pending;
                }
            };
            if next <= now {
                let Some((_, piece)) = state.pieces.front_mut() else { return Poll::Ready(Ok(())) };
                let length = piece.len().min(buffer.remaining());
                buffer.put_slice(&piece[..length]);
                piece.advance(length);
                if piece.is_empty() {
                    state.pieces.pop_front();
                }
                return Poll::Ready(Ok(()));
            }
            // A break wakes the reader as well.
            state.reader = Some(context.waker().clone());
            drop(state);
            let arrival = self.arrival.get_or_insert_with(|| Box::pin(sleep_until(next)));
            if arrival.deadline() != next {
                arrival.as_mut().reset(next);
            }
            if arrival.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.arrival = None;
        }
    }
}

impl AsyncWrite for NetworkWire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(network) = self.network.upgrade() else { return Poll::Pending };
        let outgoing = &self.outgoing;
        let arrives = network.arrival(&outgoing.from, &outgoing.to);
        let mut state = outgoing.state.lock();
        if state.broken.1 || state.closed.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let last = state.pieces.back().map_or(arrives, |(last, _)| *last);
        state.pieces.push_back((arrives.max(last), Bytes::copy_from_slice(bytes)));
        state.wake();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

impl NetworkWire {
    fn close(&self) {
        let Some(network) = self.network.upgrade() else { return };
        let arrives = network.arrival(&self.outgoing.from, &self.outgoing.to);
        let mut state = self.outgoing.state.lock();
        let last = state.pieces.back().map_or(arrives, |(last, _)| *last);
        // Of a process that is gone no end arrives.
        if !state.broken.1 {
            state.closed.get_or_insert(arrives.max(last));
        }
        state.wake();
    }
}

impl Drop for NetworkWire {
    /// Nobody reads any more: the peer may not write.
    fn drop(&mut self) {
        self.close();
        self.incoming.state.lock().broken.1 = true;
    }
}
