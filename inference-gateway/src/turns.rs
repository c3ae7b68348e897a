//! Turns of callers that are not authenticated, at work of which little is done for them at once.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use shared::{
    error::{ApiError, Code},
    process::serve::Network,
};
use tokio::{sync::oneshot, time::timeout};

/// Time that a caller waits for its turn: the work takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// The part of shared turns that one network may have: a quarter.
const SHARE_OF_A_NETWORK: usize = 4;

/// Turns, given to one network address after the other, however many callers of each wait. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Turns {
    /// Turns that run at once of one network.
    per_network: usize,
    state: Arc<Mutex<State>>,
}

struct State {
    free: usize,
    /// The turns that run, of each network with any.
    running: HashMap<Network, usize>,
    waiting: HashMap<Network, VecDeque<oneshot::Sender<Turn>>>,
    /// The addresses that wait, in the order of their next turns.
    order: VecDeque<Network>,
}

/// A turn, over when it is dropped.
pub(crate) struct Turn {
    turns: Turns,
    network: Network,
}

impl Turns {
    /// Turns, of which this many run at once.
    pub(crate) fn new(at_once: usize) -> Self {
        Self::bounded(at_once, at_once)
    }

    /// Turns, of which this many run at once, and a quarter of them for one network: work that waits for its caller
    /// leaves turns to others.
    pub(crate) fn shared(at_once: usize) -> Self {
        Self::bounded(at_once, (at_once / SHARE_OF_A_NETWORK).max(1))
    }

    fn bounded(at_once: usize, per_network: usize) -> Self {
        let (running, waiting, order) = (HashMap::new(), HashMap::new(), VecDeque::new());
        Self { per_network, state: Arc::new(Mutex::new(State { free: at_once, running, waiting, order })) }
    }

    /// Waits for a turn of a caller from this address.
    pub(crate) async fn wait(&self, network: Network) -> Result<Turn, ApiError> {
        let turn = match self.ask(network) {
            Ok(turn) => return Ok(turn),
            Err(turn) => timeout(PATIENCE, turn).await,
        };
        match turn {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(ApiError::new(
                Code::Overloaded,
                "Too many requests wait for authentication; try again shortly.",
            )),
        }
    }

    fn ask(&self, network: Network) -> Result<Turn, oneshot::Receiver<Turn>> {
        let mut state = self.state();
        if state.begin(network, self.per_network) {
            return Ok(Turn { turns: self.clone(), network });
        }
        let (sender, receiver) = oneshot::channel();
        let State { waiting, order, .. } = &mut *state;
        let callers = waiting.entry(network).or_insert_with(|| {
            order.push_back(network);
            VecDeque::new()
        });
        callers.push_back(sender);
        Err(receiver)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Begins a turn of this network, if one is free and the network has not its share.
    fn begin(&mut self, network: Network, per_network: usize) -> bool {
        let running = self.running.get(&network).copied().unwrap_or(0);
        let begins = self.free > 0 && running < per_network;
        if begins {
            self.free -= 1;
            self.running.insert(network, running + 1);
        }
        begins
    }

    /// Ends a turn of this network, and begins that of the caller whose turn it is, if one waits.
    fn end(&mut self, network: Network, per_network: usize) -> Option<(Network, oneshot::Sender<Turn>)> {
        self.free += 1;
        match self.running.get_mut(&network) {
            Some(running) if *running > 1 => *running -= 1,
            _ => drop(self.running.remove(&network)),
        }
        for _ in 0..self.order.len() {
            let network = self.order.pop_front()?;
            let Some(callers) = self.waiting.get_mut(&network) else { continue };
            while callers.front().is_some_and(oneshot::Sender::is_closed) {
                // A caller that gave up is passed over.
                callers.pop_front();
            }
            if callers.is_empty() {
                self.waiting.remove(&network);
                continue;
            }
            self.order.push_back(network);
            if self.begin(network, per_network) {
                let caller = self.waiting.get_mut(&network).and_then(VecDeque::pop_front);
                return caller.map(|caller| (network, caller));
            }
        }
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = self.turns.state().end(self.network, self.turns.per_network);
        if let Some((network, caller)) = next {
            // A caller that gave up just now drops its turn, which goes to the next one.
            let _ = caller.send(Self { turns: self.turns.clone(), network });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures_util::FutureExt;

    use super::*;

    fn network(machine: u8) -> Network {
        Network::of(IpAddr::from([192, 0, 2, machine]))
    }

    #[tokio::test]
    async fn an_address_with_many_callers_leaves_every_other_turn_to_another() {
        let turns = Turns::new(1);
        let mut running = turns.wait(network(1)).await.unwrap();
        let mut many: VecDeque<_> = (0..1_000).map(|_| turns.ask(network(1)).err().unwrap()).collect();
        let mut other = turns.ask(network(2)).err().unwrap();
        drop(many.pop_back());
        drop(running);
        running = many.pop_front().unwrap().now_or_never().unwrap().unwrap();
        assert!(other.try_recv().is_err());
        drop(running);
        drop(other.try_recv().unwrap());
        // All of them get their turns, and what was given up is not lost.
        for caller in many {
            drop(caller.await.unwrap());
        }
        let state = turns.state();
        assert!(state.free == 1 && state.running.is_empty());
        assert!(state.waiting.is_empty() && state.order.is_empty());
    }

    #[tokio::test]
    async fn one_network_has_a_quarter_of_shared_turns_and_others_find_the_rest() {
        let turns = Turns::shared(8);
        let mut running: Vec<_> = (0..2).map(|_| turns.ask(network(1)).ok().unwrap()).collect();
        let mut next = turns.ask(network(1)).err().unwrap();
        let others: Vec<_> =
            (2..5).flat_map(|n| [n, n]).map(|n| turns.ask(network(n)).ok().unwrap()).collect();
        let other = turns.ask(network(5)).err().unwrap();
        // A turn of others goes to the one that waits below its share, though it came later.
        drop(others);
        drop(other.await.unwrap());
        assert!(next.try_recv().is_err());
        drop(running.pop());
        drop(next.await.unwrap());
        drop(running);
        let state = turns.state();
        assert!(state.free == 8 && state.running.is_empty());
        assert!(state.waiting.is_empty() && state.order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_gives_up_in_time() {
        let turns = Turns::new(1);
        let running = turns.wait(network(1)).await.unwrap();
        assert_eq!(turns.wait(network(2)).await.err().unwrap().code, Code::Overloaded);
        drop(running);
        assert!(turns.wait(network(2)).await.is_ok());
    }
}
