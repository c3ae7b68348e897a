//! ManagementPermits for management requests in flight. Each has a connection to a key-service, and an answer on its way.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use shared::{
    error::{ApiError, Code},
    ids::AccountId,
    process::serve::{ConnectionTrust, Network},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    shares::{AccountShares, Unit},
    sizes::MANAGEMENT_IN_FLIGHT,
    turns::{Turn, Turns},
};

/// Requests in flight of one account.
const IN_FLIGHT_PER_ACCOUNT: usize = MANAGEMENT_IN_FLIGHT / 4;
/// Requests in flight of callers that are not authenticated. They are answered at once, and few connections to a key-service
/// do for them, which it does not trust.
const UNAUTHENTICATED_IN_FLIGHT: usize = 16;
/// Requests for pages of the dashboard in flight. People look at a few at a time.
const PAGES_IN_FLIGHT: usize = 64;

/// ManagementPermits for management requests.
pub(super) struct ManagementPermits {
    free: Arc<Semaphore>,
    unauthenticated: Turns,
    pages: Turns,
    accounts: AccountShares,
}

/// The permit of one request, given back when it is dropped.
pub(super) struct ManagementPermit {
    _of_account: Option<(OwnedSemaphorePermit, Unit)>,
    _of_stranger: Option<Turn>,
}

impl ManagementPermits {
    pub(super) fn new() -> Self {
        Self {
            free: Arc::new(Semaphore::new(
                MANAGEMENT_IN_FLIGHT - UNAUTHENTICATED_IN_FLIGHT - PAGES_IN_FLIGHT,
            )),
            unauthenticated: Turns::new(UNAUTHENTICATED_IN_FLIGHT),
            pages: Turns::new(PAGES_IN_FLIGHT),
            accounts: AccountShares::new(IN_FLIGHT_PER_ACCOUNT),
        }
    }

    /// A permit for a request of an account.
    pub(super) fn of_account(&self, account: AccountId) -> Result<ManagementPermit, ApiError> {
        let share = self.accounts.unit(account).ok_or_else(overloaded)?;
        let permit = self.free.clone().try_acquire_owned().map_err(|_| overloaded())?;
        Ok(ManagementPermit { _of_account: Some((permit, share)), _of_stranger: None })
    }

    /// A permit for a request that will be refused.
    pub(super) async fn unauthenticated(
        &self,
        trust: &ConnectionTrust,
    ) -> Result<ManagementPermit, ApiError> {
        in_turn(&self.unauthenticated, trust).await
    }

    /// A permit for a page of the dashboard.
    pub(super) async fn page(&self, trust: &ConnectionTrust) -> Result<ManagementPermit, ApiError> {
        in_turn(&self.pages, trust).await
    }
}

async fn in_turn(permits: &Turns, trust: &ConnectionTrust) -> Result<ManagementPermit, ApiError> {
    let network = trust.network().unwrap_or_else(|| Network::of(IpAddr::from(Ipv4Addr::UNSPECIFIED)));
    let turn = permits.wait(network).await.map_err(|_| overloaded())?;
    Ok(ManagementPermit { _of_account: None, _of_stranger: Some(turn) })
}

fn overloaded() -> ApiError {
    ApiError::new(Code::Overloaded, "Too many management requests are in flight; try again shortly.")
}
