//! Open holds, which are renewed and extended while requests run, and the sessions with the key-services that open and
//! settle them.

mod heartbeat;
mod hold_state;
mod holds;
mod keys;
mod open_hold;
mod settlement;
mod spool;

pub use hold_state::HoldStatus;
pub use holds::Holds;
pub use keys::{KeyServiceHealth, KeyServicePort, Keys, Peer, Unavailable, connect};
pub use open_hold::{HeldRequest, OpenHold};
pub use spool::{Spool, SpoolError};
