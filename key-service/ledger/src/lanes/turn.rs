//! Turns between processes on an account: a process that has lost several times takes the turn, which all spending
//! guards.

use std::time::Duration;

use records::{Committed, Failure, Revision};
use shared::clock::random_bytes;
use tokio::time::sleep;

use crate::{
    lanes::lane::{Lane, Lanes},
    names,
    stored::Turn,
    view::{self, View},
};

/// Number of lost attempts after which a caller takes the turn.
pub(crate) const ATTEMPTS_WITHOUT_TURN: u32 = 3;
/// Pause between two checks of another process's turn.
const TURN_LOOK: Duration = Duration::from_micros(500);
/// After this many checks, an unchanged turn is taken over, since its owner must have stopped.
const TURN_LOOKS: u32 = 40;

impl Lanes {
    /// Waits while another process has the turn, and takes it if this caller wants it. A turn that stays unchanged for
    /// too long is taken over, since its owner has stopped. No clocks are compared.
    pub(crate) async fn wait_for_turn(
        &self,
        lane: &Lane,
        view: &mut View,
        mine: [u8; 8],
        is_wanted: bool,
    ) -> Result<(), Failure> {
        let mut looks = 0;
        loop {
            let present = view.peek(&names::turn()).copied();
            match present {
                None if !is_wanted => return Ok(()),
                Some(turn) if turn.of == mine => return Ok(()),
                Some(turn) if looks < TURN_LOOKS => {
                    sleep(TURN_LOOK).await;
                    view.need_again(&names::turn());
                    view::read(&self.records, view).await?;
                    let is_same = view.peek(&names::turn()) == Some(&turn);
                    looks = if is_same { looks + 1 } else { 0 };
                }
                None | Some(_) => {
                    view.need(&names::turn());
                    view::read(&self.records, view).await?;
                    self.set_turn(lane, view, Some(mine)).await?;
                    looks = 0;
                }
            }
        }
    }

    /// Tries once to write the turn's owner, without any undecided changes.
    pub(crate) async fn set_turn(
        &self,
        lane: &Lane,
        view: &mut View,
        of: Option<[u8; 8]>,
    ) -> Result<(), Failure> {
        view.begin();
        match of {
            Some(of) => view.put(&names::turn(), Turn { of }),
            None => view.remove(&names::turn()),
        }
        let revision = Revision(random_bytes(&*self.clock));
        match self.records.commit(&lane.space, view.commit(revision, Vec::new(), Vec::new())).await? {
            Committed::Written => view.settle_turn(revision),
            Committed::Conflict(present) => view.replace(present),
        }
        Ok(())
    }
}
