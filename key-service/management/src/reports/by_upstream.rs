//! Sums per upstream, from bills.
//!
//! Daily sums do not distinguish upstreams. Instead, the latest bills of the range are read, up to a limit, and their
//! sums are exact. Everything billed earlier forms one more part.

use std::ops::RangeInclusive;

use shared::ids::AccountId;

use crate::management::Management;
use domain::{
    ledger::Entry,
    search::EntrySearch,
    usage::{COUNTED_PER_REQUEST, Day, Hour, PartCounts},
};
use key_service_store::store::StoreError;

/// Number of bills read at a time.
const AT_ONCE: usize = 500;

/// A bill's hour, its upstream's name if known, and its counts.
pub(super) type UpstreamBill = (Hour, Option<String>, PartCounts);

impl Management {
    /// Reads the latest bills of these days, at most `most`.
    pub(super) async fn bills_by_upstream(
        &self,
        account: AccountId,
        days: &RangeInclusive<Day>,
        most: usize,
    ) -> Result<Vec<UpstreamBill>, StoreError> {
        let search = EntrySearch {
            begins: Some(Hour::in_day(*days.start(), 0).begins()),
            ends: Some(Hour::in_day(days.end().plus(1), 0).begins()),
            ..EntrySearch::default()
        };
        let (mut bills, mut before) = (Vec::new(), None);
        while bills.len() < most {
            let limit = AT_ONCE.min(most - bills.len());
            let page = self.store.find_entries(account, search.clone(), before, limit).await?;
            bills.extend(page.found.iter().map(|found| of_entry(&found.entry)));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        Ok(bills)
    }
}

/// Returns what an entry adds. A correction of an earlier bill adds no request.
fn of_entry(Entry { settlement, delta, .. }: &Entry) -> UpstreamBill {
    let upstream = settlement.course.as_ref().and_then(|course| course.upstream.clone());
    let is_first = *delta == settlement.charged && settlement.ending.is_bill();
    let counted = |tokens: u64| if is_first { tokens.min(COUNTED_PER_REQUEST) } else { 0 };
    let counts = PartCounts {
        requests: u64::from(is_first),
        prompt: counted(settlement.usage.prompt),
        cached: counted(settlement.usage.cached),
        completion: counted(settlement.usage.completion),
        charged: *delta,
    };
    (Hour::of(settlement.at), upstream, counts)
}
