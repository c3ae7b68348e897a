//! Turns of changes. A change is computed from what was read, and written unless another was written meanwhile: changes of the
//! same object at once overtake each other. So those of this process wait for each other, and those of other processes
//! are met by pauses.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use shared::{backoff::Backoff, clock::Clock};
use tokio::{
    sync::{Mutex as AsyncMutex, OwnedMutexGuard},
    time::{sleep, timeout},
};

use super::Redis;
use crate::store::StoreError;

/// Attempts at a change before the call is given up: with its turn, a change meets those of other processes alone.
const ATTEMPTS: u32 = 32;
/// Pauses between attempts. A change takes about the first.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(40));
/// Longest wait for a turn: some thousand changes of the same object.
const TURN_TIMEOUT: Duration = Duration::from_secs(5);
/// Error of a change that waited too long for its turn, or was overtaken by others [`ATTEMPTS`] times.
const OVERTAKEN: StoreError = StoreError::Busy("others change the same object");

/// The objects that are being changed, by the bytes of their ids.
#[derive(Default)]
pub(super) struct ChangeTurns(Mutex<HashMap<[u8; 16], Arc<AsyncMutex<()>>>>);

/// The turn of a change, with its attempts.
pub(super) struct ChangeTurn<'a> {
    turns: &'a ChangeTurns,
    of: [u8; 16],
    place: Arc<AsyncMutex<()>>,
    /// `None` until the turn has come.
    guard: Option<OwnedMutexGuard<()>>,
    clock: &'a dyn Clock,
    pauses: Backoff,
    attempts: u32,
}

impl ChangeTurns {
    /// Waits for the turn to change the object with this id.
    async fn wait<'a>(&'a self, of: &[u8; 16], clock: &'a dyn Clock) -> Result<ChangeTurn<'a>, StoreError> {
        let place = Arc::clone(self.0.lock().entry(*of).or_default());
        let (guard, pauses, attempts) = (None, PAUSES, 0);
        let mut turn = ChangeTurn { turns: self, of: *of, place, guard, clock, pauses, attempts };
        let guard = timeout(TURN_TIMEOUT, Arc::clone(&turn.place).lock_owned()).await;
        turn.guard = Some(guard.map_err(|_| OVERTAKEN)?);
        Ok(turn)
    }
}

impl ChangeTurn<'_> {
    /// Begins an attempt, after a pause where one was overtaken before.
    pub(super) async fn attempt(&mut self) -> Result<(), StoreError> {
        if self.attempts == ATTEMPTS {
            return Err(OVERTAKEN);
        }
        if self.attempts > 0 {
            sleep(self.pauses.pause(self.clock)).await;
        }
        self.attempts += 1;
        Ok(())
    }
}

impl Drop for ChangeTurn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut turns = self.turns.0.lock();
        // The list's reference and this one.
        if Arc::strong_count(&self.place) == 2 {
            turns.remove(&self.of);
        }
    }
}

impl Redis {
    /// Waits for the turn to change the object with this id.
    pub(super) async fn turn(&self, of: &[u8; 16]) -> Result<ChangeTurn<'_>, StoreError> {
        self.turns.wait(of, &*self.clock).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use shared::clock::System;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changes_of_an_object_take_turns_and_leave_no_trace() {
        let (turns, changing) = (ChangeTurns::default(), Mutex::new([0; 2]));
        let change = |n: u8| {
            let (turns, changing, object) = (&turns, &changing, usize::from(n % 2));
            async move {
                let _turn = turns.wait(&[n % 2; 16], &System).await.unwrap();
                changing.lock()[object] += 1;
                assert_eq!(changing.lock()[object], 1);
                sleep(Duration::from_millis(10)).await;
                changing.lock()[object] -= 1;
            }
        };
        let began = tokio::time::Instant::now();
        join_all((0..20).map(change)).await;
        assert_eq!(began.elapsed(), Duration::from_millis(100), "objects are apart");
        assert!(turns.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_waits_and_tries_within_bounds() {
        let turns = ChangeTurns::default();
        let mut turn = turns.wait(&[1; 16], &System).await.unwrap();
        assert_eq!(turns.wait(&[1; 16], &System).await.err(), Some(OVERTAKEN));
        for _ in 0..ATTEMPTS {
            turn.attempt().await.unwrap();
        }
        assert_eq!(turn.attempt().await, Err(OVERTAKEN));
        drop(turn);
        assert!(turns.0.lock().is_empty());
    }
}
