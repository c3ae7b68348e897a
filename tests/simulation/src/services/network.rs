//! The network. Its connections exist in memory; they have delays, can be cut for some time, and can break.
//!
//! Bytes arrive in order, as over TCP. While two places are cut off from each other, nothing arrives; what was sent
//! arrives later. A connection ends when it is broken, or when one of its two processes ends.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes};
use http::Uri;
use parking_lot::Mutex;
use shared_client::dial::{Dial, Dialled, Wire};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, Sleep, sleep_until},
};

use crate::{
    chance::dice::Dice,
    services::process::Process,
    trace::{Trace, tell},
};

pub(crate) struct Network {
    pub(crate) trace: Arc<Trace>,
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    listeners: BTreeMap<String, UnboundedSender<NetworkWire>>,
    /// For each sender and receiver, the time before which nothing arrives.
    cuts: BTreeMap<(String, String), Instant>,
    connections: Vec<Ends>,
}

impl Network {
    pub(crate) fn new(trace: Arc<Trace>, dice: Dice) -> Arc<Self> {
        let (listeners, cuts, connections) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Arc::new(Self { trace, state: Mutex::new(State { dice, listeners, cuts, connections }) })
    }

    /// Starts to accept connections at a place.
    pub(crate) fn listen(&self, place: &str) -> UnboundedReceiver<NetworkWire> {
        let (accepted, connections) = unbounded_channel();
        self.state.lock().listeners.insert(place.to_owned(), accepted);
        connections
    }

    /// For some time, blocks everything that is sent from one place to another.
    pub(crate) fn cut(&self, from: &str, to: &str, time: Duration) {
        let until = Instant::now() + time;
        self.state.lock().cuts.insert((from.to_owned(), to.to_owned()), until);
    }

    /// Breaks all connections between two places.
    pub(crate) fn break_between(&self, one: &str, other: &str) {
        self.end_where(|ends| ends.is_between(one, other));
    }

    /// Ends a process and its connections. If `is_heard` is true, its peers notice. Otherwise, it is as if the whole
    /// machine were gone, and the peers wait.
    pub(crate) fn kill(&self, process: &Process, is_heard: bool) {
        process.kill();
        let mut state = self.state.lock();
        state.listeners.remove(&process.place);
        state.connections.retain(|ends| {
            let is_of = ends.is_at(&process.place);
            if is_of {
                ends.end_at(&process.place);
                if is_heard {
                    ends.end();
                }
            }
            !is_of && !ends.is_over()
        });
    }

    fn end_where(&self, is_concerned: impl Fn(&Ends) -> bool) {
        self.state.lock().connections.retain(|ends| {
            let concerned = is_concerned(ends);
            if concerned {
                ends.end();
            }
            !concerned && !ends.is_over()
        });
    }

    /// Returns the earliest time at which bytes that are sent now can arrive.
    fn arrival(&self, from: &str, to: &str) -> Instant {
        let mut state = self.state.lock();
        let delay = state.dice.millis(0..=2);
        let delay = if state.dice.one_in(50) { delay + state.dice.millis(1..=80) } else { delay };
        Instant::now() + delay.max(state.cut_until(from, to).saturating_duration_since(Instant::now()))
    }

    /// Returns the time before which nothing arrives.
    fn cut_until(&self, from: &str, to: &str) -> Instant {
        self.state.lock().cut_until(from, to)
    }

    async fn connect(self: Arc<Self>, process: Arc<Process>, to: String) -> io::Result<Box<dyn Wire>> {
        let (there, back) = (self.arrival(&process.place, &to), self.arrival(&to, &process.place));
        sleep_until(there).await;
        sleep_until(back).await;
        if process.is_dead() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let listener = self.state.lock().listeners.get(&to).cloned();
        let listener = listener.ok_or(io::ErrorKind::ConnectionRefused)?;
        let (near, far, ends) = connection(&self, &process.place, &to);
        listener.send(far).map_err(|_| io::ErrorKind::ConnectionRefused)?;
        self.state.lock().connections.push(ends);
        tell!(self.trace, "{} is connected to {to}", process.place);
        Ok(Box::new(near))
    }
}

impl State {
    fn cut_until(&mut self, from: &str, to: &str) -> Instant {
        let now = Instant::now();
        self.cuts.retain(|_, until| *until > now);
        let of_pair =
            |((sender, receiver), _): &(&(String, String), &Instant)| sender == from && receiver == to;
        self.cuts.iter().find(of_pair).map_or(now, |(_, until)| *until)
    }
}

/// The network as a process sees it.
pub(crate) struct NetworkOf {
    pub(crate) network: Arc<Network>,
    pub(crate) process: Arc<Process>,
}

impl Dial for NetworkOf {
    fn dial(&self, to: &Uri) -> Dialled {
        let (network, process) = (self.network.clone(), self.process.clone());
        Box::pin(network.connect(process, to.host().unwrap_or_default().to_owned()))
    }
}

/// One end of a connection.
pub(crate) struct NetworkWire {
    network: Weak<Network>,
    incoming: Arc<Direction>,
    outgoing: Arc<Direction>,
    arrival: Option<Pin<Box<Sleep>>>,
}

/// The two directions of a connection. The network keeps them to break the connection.
struct Ends(Weak<Direction>, Weak<Direction>);

struct Direction {
    from: String,
    to: String,
    state: Mutex<Underway>,
}

#[derive(Default)]
struct Underway {
    pieces: VecDeque<(Instant, Bytes)>,
    /// Time at which the end of the stream arrives, after all pieces.
    closed: Option<Instant>,
    /// Whether the reader's end is broken, and whether the writer's end is broken.
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

/// Makes a connection. Returns its two ends, and what the network keeps of it.
fn connection(network: &Arc<Network>, near: &str, far: &str) -> (NetworkWire, NetworkWire, Ends) {
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

    fn is_over(&self) -> bool {
        self.directions().next().is_none()
    }

    fn is_at(&self, place: &str) -> bool {
        self.directions().any(|direction| direction.from == place || direction.to == place)
    }

    fn is_between(&self, one: &str, other: &str) -> bool {
        self.is_at(one) && self.is_at(other)
    }

    /// Breaks both ends.
    fn end(&self) {
        for direction in self.directions() {
            let mut state = direction.state.lock();
            state.broken = (true, true);
            state.wake();
        }
    }

    /// Breaks one end, because its process is gone. The other end does not notice.
    fn end_at(&self, place: &str) {
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
            // This is read before the direction is locked, because the network locks itself first and then the
            // directions of the connections that it breaks.
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
            // The reader is also woken if the connection breaks.
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
        // If the process is gone, the end of its stream never arrives.
        if !state.broken.1 {
            state.closed.get_or_insert(arrives.max(last));
        }
        state.wake();
    }
}

impl Drop for NetworkWire {
    /// Keeps the peer from writing, because nobody reads any more.
    fn drop(&mut self) {
        self.close();
        self.incoming.state.lock().broken.1 = true;
    }
}
