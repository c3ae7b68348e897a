//! Events of commands.

use shared::{ids::EventId, time::Timestamp};

use super::{Command, Record, State};
use crate::event::{Event, EventKind};

/// Events of a command that was applied: `before` is its record as it was, `after` the new state. The id of an event follows
/// from the command, so that every store makes the same.
pub fn events(command: &Command, before: &Record, after: &State, now: Timestamp) -> Vec<Event> {
    match command {
        Command::Deposit { id, amount, actor } if *before == Record::None && after.record != Record::None => {
            let kind = EventKind::CreditAdded { deposit_id: *id, amount: *amount };
            let id = EventId::from_slice(id.as_bytes());
            let event = |id| Event { id, at: now, actor: actor.clone(), key: None, group: None, kind };
            id.map(event).into_iter().collect()
        }
        Command::Deposit { .. }
        | Command::Tick { .. }
        | Command::Check { .. }
        | Command::Hold { .. }
        | Command::Extend { .. }
        | Command::Capture { .. }
        | Command::Release { .. }
        | Command::Expire { .. } => Vec::new(),
    }
}
