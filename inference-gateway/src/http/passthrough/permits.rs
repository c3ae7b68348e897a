//! Permits for management requests in flight. Each request has a connection to a key-service, and an answer on the way.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use shared::{
    error::{ApiError, Code},
    ids::AccountId,
    process::serve::{ConnectionTrust, Network},
    shares::{self, Shares},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    shares::{AccountShares, Unit},
    sizes::MANAGEMENT_IN_FLIGHT,
    turns::{Turn, Turns},
};

/// Limit of requests in flight of an account.
const IN_FLIGHT_PER_ACCOUNT: usize = MANAGEMENT_IN_FLIGHT / 4;
/// Limit of requests in flight of unauthenticated callers. Such requests are answered at once, and a key-service that
/// does not trust these callers needs few connections.
const UNAUTHENTICATED_IN_FLIGHT: usize = 16;
/// Requests for pages of the dashboard in flight. People look at a few at a time.
const PAGES_IN_FLIGHT: usize = 64;
/// Limit of exports in flight: files without a bound, sent at the clients' pace. A key-service makes two exports at
/// once for an account.
const EXPORTS_IN_FLIGHT: usize = 8;
/// Bytes of a page, or of a refusal, that need no room: pages without a session have less.
const SMALL_PAGE: usize = 16 << 10;
/// KiB of larger pages in memory until sent, with a quarter for each network: hundreds of the largest pages.
const PAGES_KIB: usize = 32 << 10;

/// Permits for management requests.
pub(super) struct ManagementPermits {
    free: Arc<Semaphore>,
    unauthenticated: Turns,
    pages: Turns,
    exports: Arc<Semaphore>,
    accounts: AccountShares,
    pages_kib: Arc<Semaphore>,
    pages_kib_of_network: Shares<Network>,
}

/// Permit of an account's request, given back when dropped.
pub(super) struct ManagementPermit {
    _share: Unit,
    _permit: OwnedSemaphorePermit,
}

/// Turn of a caller without a management key, over when dropped.
pub(super) struct StrangersTurn {
    network: Network,
    _turn: Turn,
}

/// Room for a page in memory, given back when dropped.
pub(super) struct PageRoom {
    _share: shares::Unit<Network>,
    _permit: OwnedSemaphorePermit,
}

impl ManagementPermits {
    pub(super) fn new() -> Self {
        let others = UNAUTHENTICATED_IN_FLIGHT + PAGES_IN_FLIGHT + EXPORTS_IN_FLIGHT;
        Self {
            free: Arc::new(Semaphore::new(MANAGEMENT_IN_FLIGHT - others)),
            unauthenticated: Turns::of_networks(UNAUTHENTICATED_IN_FLIGHT),
            pages: Turns::of_networks(PAGES_IN_FLIGHT),
            exports: Arc::new(Semaphore::new(EXPORTS_IN_FLIGHT)),
            accounts: AccountShares::new(IN_FLIGHT_PER_ACCOUNT),
            pages_kib: Arc::new(Semaphore::new(PAGES_KIB)),
            pages_kib_of_network: Shares::new(PAGES_KIB / 4),
        }
    }

    /// A permit for a request of an account.
    pub(super) fn of_account(&self, account: AccountId) -> Result<ManagementPermit, ApiError> {
        let share = self.accounts.unit(account).ok_or_else(overloaded)?;
        let permit = self.free.clone().try_acquire_owned().map_err(|_| overloaded())?;
        Ok(ManagementPermit { _share: share, _permit: permit })
    }

    /// A turn for a request that will be refused.
    pub(super) async fn unauthenticated(&self, trust: &ConnectionTrust) -> Result<StrangersTurn, ApiError> {
        in_turn(&self.unauthenticated, trust.network()).await
    }

    /// A turn for a page of the dashboard.
    pub(super) async fn page(&self, network: Option<Network>) -> Result<StrangersTurn, ApiError> {
        in_turn(&self.pages, network).await
    }

    /// Takes a free place for an export.
    pub(super) fn export(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.exports.clone().try_acquire_owned().map_err(|_| overloaded())
    }

    /// Reserves room for `bytes` of a page until sent, if there is any. A small page needs none.
    pub(super) fn room(&self, turn: &StrangersTurn, bytes: usize) -> Result<Option<PageRoom>, ApiError> {
        if bytes <= SMALL_PAGE {
            return Ok(None);
        }
        let kib = bytes.div_ceil(1 << 10);
        let share = self.pages_kib_of_network.units(turn.network, kib).ok_or_else(overloaded)?;
        let permits = u32::try_from(kib).map_err(|_| overloaded())?;
        let permit = self.pages_kib.clone().try_acquire_many_owned(permits).map_err(|_| overloaded())?;
        Ok(Some(PageRoom { _share: share, _permit: permit }))
    }
}

async fn in_turn(turns: &Turns, network: Option<Network>) -> Result<StrangersTurn, ApiError> {
    let network = network.unwrap_or_else(|| Network::of(IpAddr::from(Ipv4Addr::UNSPECIFIED)));
    let turn = turns.wait(network).await.map_err(|_| overloaded())?;
    Ok(StrangersTurn { network, _turn: turn })
}

fn overloaded() -> ApiError {
    ApiError::new(Code::Overloaded, "Too many management requests are in flight; try again shortly.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_of_one_network_take_a_quarter_of_their_memory() {
        let permits = ManagementPermits::new();
        let turn = |machine: u8| permits.page(Some(Network::of(IpAddr::from([192, 0, 2, machine]))));
        let (one, other) = (turn(1).await.unwrap(), turn(2).await.unwrap());
        assert!(permits.room(&one, SMALL_PAGE).unwrap().is_none());
        let quarter = (PAGES_KIB / 4) << 10;
        let taken = permits.room(&one, quarter).unwrap();
        assert!(taken.is_some() && permits.room(&one, SMALL_PAGE + 1).is_err());
        assert!(permits.room(&other, quarter).unwrap().is_some());
        drop(taken);
        assert!(permits.room(&one, SMALL_PAGE + 1).unwrap().is_some());
    }
}
