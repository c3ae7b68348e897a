//! Permits for management requests in flight. Each such request occupies a connection to a key-service.

use admission::wait_for_permit;
use shared::{
    error::{ApiError, Code},
    ids::AccountId,
};
use shared_door::admission::{Network, Owner, Permit, Quota};

use crate::sizes::MANAGEMENT_IN_FLIGHT;

/// Maximum number of an account's requests in flight.
const IN_FLIGHT_PER_ACCOUNT: usize = MANAGEMENT_IN_FLIGHT / 4;
/// Maximum number of unauthenticated callers' requests in flight. Such requests are answered at once, so a key-service
/// needs few connections for them.
const UNAUTHENTICATED_IN_FLIGHT: usize = 16;
/// Maximum number of requests for dashboard pages in flight. People look at only a few pages at a time.
const PAGES_IN_FLIGHT: usize = 64;
/// Maximum number of exports in flight. Exports are files and large pages of any length, and are sent at the client's
/// pace. A network may use a quarter of them.
const EXPORTS_IN_FLIGHT: usize = 8;
/// Maximum number of an account's exports in flight. It is needed because an account's members may be in many networks.
/// A key-service allows the same number.
const EXPORTS_PER_ACCOUNT: usize = 2;
/// Size in bytes up to which a page or a refusal needs no permit. Pages that are shown without a session are smaller
/// than this.
const SMALL_PAGE: usize = 16 << 10;
/// Memory, in KiB, that larger pages may use until they are sent: enough for hundreds of usual pages. A network may use
/// a quarter.
const PAGES_KIB: usize = 32 << 10;

pub(in super::super) struct ManagementPermits {
    requests: Quota,
    unauthenticated: Quota,
    pages: Quota,
    exports: Quota,
    exports_of_accounts: Quota,
    pages_kib: Quota,
}

impl ManagementPermits {
    pub(super) fn new() -> Self {
        let others = UNAUTHENTICATED_IN_FLIGHT + PAGES_IN_FLIGHT + EXPORTS_IN_FLIGHT;
        // Each network may use a quarter of the permits, so that others get permits even if many requests wait for a
        // slow caller.
        let of_networks = |total: usize| Quota::new(total, total / 4);
        Self {
            requests: Quota::new(MANAGEMENT_IN_FLIGHT - others, IN_FLIGHT_PER_ACCOUNT),
            unauthenticated: of_networks(UNAUTHENTICATED_IN_FLIGHT),
            pages: of_networks(PAGES_IN_FLIGHT),
            exports: of_networks(EXPORTS_IN_FLIGHT),
            exports_of_accounts: Quota::new(EXPORTS_IN_FLIGHT, EXPORTS_PER_ACCOUNT),
            pages_kib: of_networks(PAGES_KIB),
        }
    }

    /// Takes a permit for a request from an account.
    pub(in super::super) fn of_account(&self, account: AccountId) -> Result<Permit, ApiError> {
        self.requests.try_take(Owner::Account(account), 1).ok_or_else(overloaded)
    }

    /// Takes a permit for a request without a valid credential. A key-service will refuse the request.
    pub(in super::super) async fn unauthenticated(&self, network: Network) -> Result<Permit, ApiError> {
        wait_for_permit(&self.unauthenticated, Owner::Network(network)).await.ok_or_else(overloaded)
    }

    /// Takes a permit for a page of the dashboard.
    pub(in super::super) async fn page(&self, network: Network) -> Result<Permit, ApiError> {
        wait_for_permit(&self.pages, Owner::Network(network)).await.ok_or_else(overloaded)
    }

    /// Takes permits for an export: one for the network that has this permit and, if a member is signed in, one for the
    /// member's account.
    pub(super) fn export(
        &self,
        permit: &Permit,
        account: Option<AccountId>,
    ) -> Result<(Permit, Option<Permit>), ApiError> {
        let of_network = self.exports.try_take(permit.owner(), 1).ok_or_else(overloaded)?;
        let of_account = |account| self.exports_of_accounts.try_take(Owner::Account(account), 1);
        let of_account = account.map(|account| of_account(account).ok_or_else(overloaded)).transpose()?;
        Ok((of_network, of_account))
    }

    /// Takes a permit for `bytes` of a page in memory, for the owner of `permit`. A small page needs no permit.
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

    use shared::clock::System;

    use super::*;

    #[tokio::test]
    async fn exports_of_one_network_or_of_one_account_leave_places_to_others() {
        let permits = ManagementPermits::new();
        let page = |machine: u8| permits.page(Network::of(IpAddr::from([192, 0, 2, machine])));
        let account = || Some(AccountId::generate(&System));
        let greedy = account();
        let mut taken = Vec::new();
        for (machine, account, fits) in [
            (1, greedy, true),
            (1, None, true),
            (1, account(), false),
            (2, greedy, true),
            (3, greedy, false),
            (3, account(), true),
            (3, None, true),
            (4, account(), true),
        ] {
            let exports = permits.export(&page(machine).await.unwrap(), account);
            assert_eq!(exports.is_ok(), fits, "from {machine}");
            taken.extend(exports);
        }
        taken.clear();
        assert!(permits.export(&page(3).await.unwrap(), greedy).is_ok());
    }

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
