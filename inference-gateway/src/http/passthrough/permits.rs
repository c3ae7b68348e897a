//! Permits for management requests in flight. Each request has a connection to a key-service, and an answer on the way.

use shared::{
    admission::{Network, Owner, Permit, Quota},
    error::{ApiError, Code},
    ids::AccountId,
};

use crate::{admission::wait_for_permit, sizes::MANAGEMENT_IN_FLIGHT};

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
/// Bytes of a page, or of a refusal, that need no permit: pages without a session have less.
const SMALL_PAGE: usize = 16 << 10;
/// KiB of larger pages in memory until sent, with a quarter for each network: hundreds of the largest pages.
const PAGES_KIB: usize = 32 << 10;

/// Quotas of management requests.
pub(super) struct ManagementPermits {
    requests: Quota,
    unauthenticated: Quota,
    pages: Quota,
    exports: Quota,
    pages_kib: Quota,
}

impl ManagementPermits {
    pub(super) fn new() -> Self {
        let others = UNAUTHENTICATED_IN_FLIGHT + PAGES_IN_FLIGHT + EXPORTS_IN_FLIGHT;
        // Networks have a quarter each, so that requests that wait for their caller leave permits to others.
        let of_networks = |total: usize| Quota::new(total, total / 4);
        Self {
            requests: Quota::new(MANAGEMENT_IN_FLIGHT - others, IN_FLIGHT_PER_ACCOUNT),
            unauthenticated: of_networks(UNAUTHENTICATED_IN_FLIGHT),
            pages: of_networks(PAGES_IN_FLIGHT),
            exports: Quota::new(EXPORTS_IN_FLIGHT, EXPORTS_IN_FLIGHT),
            pages_kib: of_networks(PAGES_KIB),
        }
    }

    /// A permit for a request of an account.
    pub(super) fn of_account(&self, account: AccountId) -> Result<Permit, ApiError> {
        self.requests.try_take(Owner::Account(account), 1).ok_or_else(overloaded)
    }

    /// A permit for a request that will be refused.
    pub(super) async fn unauthenticated(&self, network: Network) -> Result<Permit, ApiError> {
        wait_for_permit(&self.unauthenticated, Owner::Network(network)).await.ok_or_else(overloaded)
    }

    /// A permit for a page of the dashboard.
    pub(super) async fn page(&self, network: Network) -> Result<Permit, ApiError> {
        wait_for_permit(&self.pages, Owner::Network(network)).await.ok_or_else(overloaded)
    }

    /// A permit for an export.
    pub(super) fn export(&self) -> Result<Permit, ApiError> {
        self.exports.try_take(Owner::Service, 1).ok_or_else(overloaded)
    }

    /// A permit for `bytes` of a page in memory, of the owner of this permit. A small page needs none.
    pub(super) fn memory(&self, permit: &Permit, bytes: usize) -> Result<Option<Permit>, ApiError> {
        if bytes <= SMALL_PAGE {
            return Ok(None);
        }
        self.pages_kib.try_take(permit.owner(), bytes.div_ceil(1 << 10)).ok_or_else(overloaded).map(Some)
    }
}

fn overloaded() -> ApiError {
    ApiError::new(Code::Overloaded, "Too many management requests are in flight; try again shortly.")
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[tokio::test]
    async fn pages_of_one_network_take_a_quarter_of_their_memory() {
        let permits = ManagementPermits::new();
        let page = |machine: u8| permits.page(Network::of(IpAddr::from([192, 0, 2, machine])));
        let (one, other) = (page(1).await.unwrap(), page(2).await.unwrap());
        assert!(permits.memory(&one, SMALL_PAGE).unwrap().is_none());
        let quarter = (PAGES_KIB / 4) << 10;
        let taken = permits.memory(&one, quarter).unwrap();
        assert!(taken.is_some() && permits.memory(&one, SMALL_PAGE + 1).is_err());
        assert!(permits.memory(&other, quarter).unwrap().is_some());
        drop(taken);
        assert!(permits.memory(&one, SMALL_PAGE + 1).unwrap().is_some());
    }
}
