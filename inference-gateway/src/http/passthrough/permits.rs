//! ManagementPermits for management requests in flight. Each has a connection to a key-service, and an answer on its way.

use std::{sync::Arc, time::Duration};

use shared::{
    error::{ApiError, Code},
    ids::AccountId,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    shares::{AccountShares, Unit},
    sizes::MANAGEMENT_IN_FLIGHT,
};

/// Requests in flight of one account.
const IN_FLIGHT_PER_ACCOUNT: usize = MANAGEMENT_IN_FLIGHT / 4;
/// Requests in flight of callers that are not authenticated. They are answered at once, and few connections to a key-service
/// do for them, which it does not trust.
const UNAUTHENTICATED_IN_FLIGHT: usize = 16;
/// Requests for pages of the dashboard in flight. People look at a few at a time.
const PAGES_IN_FLIGHT: usize = 64;
/// Time that a caller without authentication waits for its turn.
const TURN: Duration = Duration::from_secs(2);

/// ManagementPermits for management requests.
pub(super) struct ManagementPermits {
    free: Arc<Semaphore>,
    unauthenticated: Arc<Semaphore>,
    pages: Arc<Semaphore>,
    accounts: AccountShares,
}

/// The permit of one request, given back when it is dropped.
pub(super) struct ManagementPermit {
    _permit: OwnedSemaphorePermit,
    _share: Option<Unit>,
}

impl ManagementPermits {
    pub(super) fn new() -> Self {
        Self {
            free: Arc::new(Semaphore::new(
                MANAGEMENT_IN_FLIGHT - UNAUTHENTICATED_IN_FLIGHT - PAGES_IN_FLIGHT,
            )),
            unauthenticated: Arc::new(Semaphore::new(UNAUTHENTICATED_IN_FLIGHT)),
            pages: Arc::new(Semaphore::new(PAGES_IN_FLIGHT)),
            accounts: AccountShares::new(IN_FLIGHT_PER_ACCOUNT),
        }
    }

    /// A permit for a request of an account.
    pub(super) fn of_account(&self, account: AccountId) -> Result<ManagementPermit, ApiError> {
        let share = self.accounts.unit(account).ok_or_else(overloaded)?;
        let permit = self.free.clone().try_acquire_owned().map_err(|_| overloaded())?;
        Ok(ManagementPermit { _permit: permit, _share: Some(share) })
    }

    /// A permit for a request that will be refused.
    pub(super) async fn unauthenticated(&self) -> Result<ManagementPermit, ApiError> {
        in_turn(&self.unauthenticated).await
    }

    /// A permit for a page of the dashboard.
    pub(super) async fn page(&self) -> Result<ManagementPermit, ApiError> {
        in_turn(&self.pages).await
    }
}

async fn in_turn(permits: &Arc<Semaphore>) -> Result<ManagementPermit, ApiError> {
    let turn = timeout(TURN, permits.clone().acquire_owned()).await;
    let Ok(Ok(permit)) = turn else { return Err(overloaded()) };
    Ok(ManagementPermit { _permit: permit, _share: None })
}

fn overloaded() -> ApiError {
    ApiError::new(Code::Overloaded, "Too many management requests are in flight; try again shortly.")
}
