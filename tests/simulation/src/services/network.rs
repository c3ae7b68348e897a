//! The network: connections in memory, with delays, partitions and breaks.
//!
//! Bytes arrive in order, as TCP delivers them. A partition delays what is sent, and what is under way, to its end; a break or
//! the end of a process ends connections.

mod wire;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use http::Uri;
use parking_lot::Mutex;
use shared_client::dial::{Dial, Dialled, Wire};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, sleep_until},
};

use crate::{chance::dice::Dice, services::process::Process, tell, trace::Trace};
pub(crate) use wire::NetworkWire;
use wire::{Ends, connection};

pub(crate) struct Network {
    pub(crate) trace: Arc<Trace>,
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    listeners: BTreeMap<String, UnboundedSender<NetworkWire>>,
    /// Times until which nothing arrives, by sender and receiver.
    cuts: BTreeMap<(String, String), Instant>,
    connections: Vec<Ends>,
}

impl Network {
    pub(crate) fn new(trace: Arc<Trace>, dice: Dice) -> Arc<Self> {
        let (listeners, cuts, connections) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Arc::new(Self { trace, state: Mutex::new(State { dice, listeners, cuts, connections }) })
    }

    /// Accepts connections at a place from now on.
    pub(crate) fn listen(&self, place: &str) -> UnboundedReceiver<NetworkWire> {
        let (accepted, connections) = unbounded_channel();
        self.state.lock().listeners.insert(place.to_owned(), accepted);
        connections
    }

    /// Lets nothing arrive from one place at another for some time.
    pub(crate) fn cut(&self, from: &str, to: &str, time: Duration) {
        let until = Instant::now() + time;
        self.state.lock().cuts.insert((from.to_owned(), to.to_owned()), until);
    }

    /// Breaks all connections between two places.
    pub(crate) fn break_between(&self, one: &str, other: &str) {
        self.end_where(|ends| ends.is_between(one, other));
    }

    /// Ends a process and its connections. Its peers hear of that, unless the whole machine is gone: they then wait.
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

    /// Time at which something arrives that is sent now, at the earliest.
    fn arrival(&self, from: &str, to: &str) -> Instant {
        let mut state = self.state.lock();
        let delay = state.dice.millis(0..=2);
        let delay = if state.dice.one_in(50) { delay + state.dice.millis(1..=80) } else { delay };
        Instant::now() + delay.max(state.cut_until(from, to).saturating_duration_since(Instant::now()))
    }

    /// Time until which nothing arrives.
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

/// The network as a process uses it.
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
