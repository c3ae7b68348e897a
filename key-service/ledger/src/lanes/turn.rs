//! Turns of processes at an account: a process that has lost several times takes the turn, which all spending guards.

use std::time::Duration;

use records::{Answer, Commit, Committed, Failure, Question, Revision};
use shared::clock::random_bytes;
use tokio::time::sleep;

use crate::{
    copies::{Copies, Slot, TheTurn},
    lanes::lane::{Lane, Lanes},
    stored::Turn,
};

/// Lost attempts after which a caller takes the turn.
pub(crate) const ATTEMPTS_WITHOUT_TURN: u32 = 3;
/// Pause between two checks of another process's turn.
const TURN_LOOK: Duration = Duration::from_micros(500);
/// After this many checks, an unchanged turn is taken over, since its owner must be gone.
const TURN_LOOKS: u32 = 40;

impl Lanes {
    pub(crate) async fn read(
        &self,
        lane: &Lane,
        copies: &mut Copies,
        slots: Vec<Slot>,
    ) -> Result<(), Failure> {
        let names = slots.iter().map(Slot::name).collect();
        let mut answers = self.records.read(&lane.space, vec![Question::Records(names)]).await?;
        let Some(Answer::Records(records)) = answers.pop() else {
            return Err(Failure::Damaged("no records in an answer".into()));
        };
        for (slot, record) in slots.into_iter().zip(records) {
            copies.keep(slot.clone(), record.as_ref());
            lane.tell_damage(copies, &slot);
        }
        Ok(())
    }

    /// Waits while another process has the turn, and takes it if this caller wants it. A turn that stays unchanged for
    /// too long is taken over, since its owner is gone. No clocks are compared.
    pub(crate) async fn wait_for_turn(
        &self,
        lane: &Lane,
        copies: &mut Copies,
        mine: [u8; 8],
        is_wanted: bool,
    ) -> Result<(), Failure> {
        let mut looks = 0;
        loop {
            let present = copies.turn.get(&TheTurn).copied().flatten();
            match present {
                None if !is_wanted => return Ok(()),
                Some(turn) if turn.of == mine => return Ok(()),
                Some(turn) if looks < TURN_LOOKS => {
                    sleep(TURN_LOOK).await;
                    self.read(lane, copies, vec![Slot::Turn]).await?;
                    let is_same = copies.turn.get(&TheTurn) == Some(&Some(turn));
                    looks = if is_same { looks + 1 } else { 0 };
                }
                None | Some(_) => {
                    if !copies.has(&Slot::Turn) {
                        self.read(lane, copies, vec![Slot::Turn]).await?;
                    }
                    self.set_turn(lane, copies, Some(mine)).await?;
                    looks = 0;
                }
            }
        }
    }

    /// Tries once to write the owner of the turn.
    pub(crate) async fn set_turn(
        &self,
        lane: &Lane,
        copies: &mut Copies,
        of: Option<[u8; 8]>,
    ) -> Result<(), Failure> {
        copies.turn(&TheTurn);
        copies.set_turn(&TheTurn, of.map(|of| Turn { of }));
        let revision = Revision(random_bytes(&*self.clock));
        let (guards, writes) = copies.changes(revision);
        match self.records.commit(&lane.space, Commit { guards, writes }).await? {
            Committed::Written => copies.settle(revision),
            Committed::Conflict(present) => {
                copies.replace(&present);
            }
        }
        Ok(())
    }
}
