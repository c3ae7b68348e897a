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

/// Turns, given to one network address after the other, however many callers of each wait. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Mutex<State>>);

struct State {
    free: usize,
    waiting: HashMap<Network, VecDeque<oneshot::Sender<Turn>>>,
    /// The addresses that wait, in the order of their next turns.
    order: VecDeque<Network>,
}

/// A turn, over when it is dropped.
pub(crate) struct Turn(Turns);

impl Turns {
    /// Turns, of which this many run at once.
    pub(crate) fn new(at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: at_once, waiting: HashMap::new(), order: VecDeque::new() })))
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
        if state.free > 0 {
            state.free -= 1;
            return Ok(Turn(self.clone()));
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

    /// The caller whose turn it is, if one waits; else there is a turn more.
    fn next(&self) -> Option<oneshot::Sender<Turn>> {
        let mut state = self.state();
        let State { waiting, order, free } = &mut *state;
        while let Some(network) = order.pop_front() {
            let Some(callers) = waiting.get_mut(&network) else { continue };
            // Those that gave up are passed over.
            let next = std::iter::from_fn(|| callers.pop_front()).find(|caller| !caller.is_closed());
            if callers.is_empty() {
                waiting.remove(&network);
            } else {
                order.push_back(network);
            }
            if next.is_some() {
                return next;
            }
        }
        *free += 1;
        None
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(caller) = self.0.next() {
            // A caller that gave up just now drops its turn, which goes to the next one.
            let _ = caller.send(Self(self.0.clone()));
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
        assert!(state.free == 1 && state.waiting.is_empty() && state.order.is_empty());
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
