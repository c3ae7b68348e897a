//! Suspension and closure of an account. Both are in the account's record, on which every commit about money has a
//! guard. So a request that begins after a suspension is refused, whichever key-service gets it.

use shared::{money::NanoUsd, time::Timestamp};

use crate::ledger::{
    command::Refused,
    state::{Account, Standing},
};

/// What an account may do now, as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountStatus {
    Active,
    Suspended,
    Closed,
}

shared::names! { AccountStatus: Active = "active", Suspended = "suspended", Closed = "closed" }

/// What an operator does with an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StandingAct {
    /// Members see the reason.
    Suspend(String),
    Restore,
    Close,
}

/// Why the standing of an account was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandingRefused {
    /// A closed account stays closed.
    Closed,
    /// Only a suspended account can be closed, so that nobody spends in the meantime.
    Active,
    /// Only an account without credit can be closed.
    HasMoney { credit: NanoUsd, held: NanoUsd },
}

impl AccountStatus {
    pub const fn of(standing: Option<&Standing>) -> Self {
        match standing {
            None => Self::Active,
            Some(standing) if standing.is_closed() => Self::Closed,
            Some(_) => Self::Suspended,
        }
    }
}

impl Account {
    /// Suspends, restores or closes the account.
    pub fn after(self, act: &StandingAct, now: Timestamp) -> Result<Self, StandingRefused> {
        match act {
            StandingAct::Suspend(_) => self.suspended(now),
            StandingAct::Restore => self.restored(),
            StandingAct::Close => self.closed(now),
        }
    }

    /// Suspends the account. A suspended account stays as it is.
    fn suspended(self, now: Timestamp) -> Result<Self, StandingRefused> {
        match self.standing {
            None => Ok(Self { standing: Some(Standing { suspended_at: now, closed_at: None }), ..self }),
            Some(standing) if standing.is_closed() => Err(StandingRefused::Closed),
            Some(_) => Ok(self),
        }
    }

    /// Makes a suspended account active again. An active account stays as it is.
    fn restored(self) -> Result<Self, StandingRefused> {
        match self.standing {
            Some(standing) if standing.is_closed() => Err(StandingRefused::Closed),
            Some(_) | None => Ok(Self { standing: None, ..self }),
        }
    }

    /// Closes a suspended account without money. A closed account stays as it is.
    fn closed(self, now: Timestamp) -> Result<Self, StandingRefused> {
        let standing = self.standing.ok_or(StandingRefused::Active)?;
        if standing.is_closed() {
            return Ok(self);
        }
        let Self { credit, held, .. } = self;
        if credit != NanoUsd::ZERO || held != NanoUsd::ZERO {
            return Err(StandingRefused::HasMoney { credit, held });
        }
        Ok(Self { standing: Some(Standing { closed_at: Some(now), ..standing }), ..self })
    }

    /// Refuses to spend unless the account is active.
    pub(super) fn may_spend(&self) -> Result<(), Refused> {
        match self.standing {
            None => Ok(()),
            Some(standing) if standing.is_closed() => Err(Refused::AccountClosed),
            Some(_) => Err(Refused::AccountSuspended),
        }
    }
}
