//! Turns at work of which little is done at once: of callers that are not authenticated, or of accounts.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use shared::{
    error::{ApiError, Code},
    process::serve::Network,
};
use tokio::{sync::oneshot, time::timeout};

/// Timeout of a caller without an accepted credential for a turn: the work takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// Divisor for the part of shared turns of a single network: a quarter.
const SHARE_OF_A_NETWORK: usize = 4;

/// A network address, or an account.
pub(crate) trait TurnKey: Copy + Eq + Hash {}

impl<K: Copy + Eq + Hash> TurnKey for K {}

/// Turns, given to network addresses (or accounts) in rotation, however many callers of each wait. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Turns<K: TurnKey = Network>(Arc<Mutex<State<K>>>);

struct State<K: TurnKey> {
    free: usize,
    /// Largest number of simultaneous turns for a key.
    most_of_each: usize,
    running: HashMap<K, usize>,
    waiting: HashMap<K, VecDeque<oneshot::Sender<Turn<K>>>>,
    /// The waiting keys, in the order of their next turns.
    order: VecDeque<K>,
}

/// A turn, over when dropped.
pub(crate) struct Turn<K: TurnKey = Network> {
    turns: Turns<K>,
    of: K,
}

impl Turns {
    /// Turns of network addresses, of which this many run at once.
    pub(crate) fn new(at_once: usize) -> Self {
        Self::shared(at_once, at_once)
    }

    /// Makes turns of network addresses: `at_once` in all, a quarter for a single network, so that work that waits for
    /// its caller leaves turns to others.
    pub(crate) fn of_networks(at_once: usize) -> Self {
        Self::shared(at_once, (at_once / SHARE_OF_A_NETWORK).max(1))
    }

    /// Waits for a turn of a caller from this address.
    pub(crate) async fn wait(&self, network: Network) -> Result<Turn, ApiError> {
        let late = "Too many requests wait for authentication; try again shortly.";
        self.wait_within(PATIENCE, network).await.ok_or_else(|| ApiError::new(Code::Overloaded, late))
    }
}

impl<K: TurnKey> Turns<K> {
    /// Makes turns: `at_once` in all, `most_of_each` for a key.
    pub(crate) fn shared(at_once: usize, most_of_each: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: at_once,
            most_of_each,
            running: HashMap::new(),
            waiting: HashMap::new(),
            order: VecDeque::new(),
        })))
    }

    /// Waits for a turn of this key; `None` after `patience`.
    pub(crate) async fn wait_within(&self, patience: Duration, of: K) -> Option<Turn<K>> {
        match self.ask(of) {
            Ok(turn) => Some(turn),
            Err(turn) => timeout(patience, turn).await.ok()?.ok(),
        }
    }

    fn ask(&self, of: K) -> Result<Turn<K>, oneshot::Receiver<Turn<K>>> {
        let mut state = self.state();
        if state.free > 0 && state.may_run(of) {
            state.free -= 1;
            return Ok(self.begin(&mut state, of));
        }
        let (sender, receiver) = oneshot::channel();
        let State { waiting, order, .. } = &mut *state;
        let callers = waiting.entry(of).or_insert_with(|| {
            order.push_back(of);
            VecDeque::new()
        });
        callers.push_back(sender);
        Err(receiver)
    }

    fn begin(&self, state: &mut State<K>, of: K) -> Turn<K> {
        *state.running.entry(of).or_default() += 1;
        Turn { turns: self.clone(), of }
    }

    /// Ends a turn. Returns the turn of the next waiting caller that may have a turn, or frees the turn.
    fn next(&self, over: K) -> Option<(oneshot::Sender<Turn<K>>, Turn<K>)> {
        let mut state = self.state();
        state.end(over);
        for _ in 0..state.order.len() {
            let of = state.order.pop_front()?;
            if !state.may_run(of) {
                state.order.push_back(of);
                continue;
            }
            let Some(callers) = state.waiting.get_mut(&of) else { continue };
            // Callers that gave up are passed over.
            let next = std::iter::from_fn(|| callers.pop_front()).find(|caller| !caller.is_closed());
            if callers.is_empty() {
                state.waiting.remove(&of);
            } else {
                state.order.push_back(of);
            }
            if let Some(caller) = next {
                return Some((caller, self.begin(&mut state, of)));
            }
        }
        state.free += 1;
        None
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.0.lock()
    }
}

impl<K: TurnKey> State<K> {
    fn may_run(&self, of: K) -> bool {
        self.running.get(&of).is_none_or(|running| *running < self.most_of_each)
    }

    fn end(&mut self, of: K) {
        if let Some(running) = self.running.get_mut(&of) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(&of);
            }
        }
    }
}

impl<K: TurnKey> Drop for Turn<K> {
    fn drop(&mut self) {
        if let Some((caller, turn)) = self.turns.next(self.of) {
            // A caller that gave up just now drops its turn, which goes to the next caller.
            let _ = caller.send(turn);
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
        assert!(
            state.free == 1 && state.waiting.is_empty() && state.order.is_empty() && state.running.is_empty()
        );
    }

    #[tokio::test]
    async fn a_key_has_its_share_and_leaves_the_rest_to_others_however_many_callers_it_has() {
        let turns = Turns::shared(4, 2);
        let running = [turns.ask(1).ok().unwrap(), turns.ask(1).ok().unwrap()];
        let mut many: VecDeque<_> = (0..100).map(|_| turns.ask(1).err().unwrap()).collect();
        let others = [turns.ask(2).ok().unwrap(), turns.ask(3).ok().unwrap()];
        let mut late = turns.ask(4).err().unwrap();
        drop(others);
        drop(late.try_recv().expect("a free turn goes to the key below its share"));
        assert!(many.iter_mut().all(|caller| caller.try_recv().is_err()));
        drop(running);
        let next: Vec<_> = many.iter_mut().filter_map(|caller| caller.try_recv().ok()).collect();
        assert_eq!(next.len(), 2);
        drop(many);
        drop(next);
        let state = turns.state();
        assert!(
            state.free == 4 && state.waiting.is_empty() && state.order.is_empty() && state.running.is_empty()
        );
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
