//! Billed and refused requests in one list for members, newest first, page by page.

use std::{fmt, iter::Peekable, vec};

use shared::{ids::RefusalId, time::Timestamp};

use crate::{history::refusals::RefusedFilter, management::Management, nouns::reach::AccountReach};
use domain::{refused::RefusedCall, search::EntrySearch};
use key_service_store::store::{Found, JournalEntry, StoreError};

/// Which requests a member searches for.
#[derive(Clone, Debug)]
pub struct RequestSearch {
    /// Entries of billed requests; `None` leaves them out.
    pub billed: Option<EntrySearch>,
    /// Refused calls; `None` leaves them out.
    pub refused: Option<RefusedFilter>,
}

/// A request that was billed or refused.
#[derive(Clone, Debug)]
pub enum AnyRequest {
    /// An entry of the journal.
    Billed(Box<JournalEntry>),
    Refused(RefusedCall),
}

/// A page of the list.
#[derive(Clone, Debug)]
pub struct RequestPage {
    pub found: Vec<AnyRequest>,
    /// Where to continue; `None` at the end.
    pub next: Option<RequestCursor>,
    /// Number of refused calls on all pages.
    pub refused: usize,
}

/// A position in the list; all rows before it have been shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCursor {
    /// Number of the last entry that was read.
    pub entry: Option<u64>,
    /// The last refused call that was shown.
    pub refusal: Option<RefusalId>,
}

impl RequestCursor {
    pub fn parse(text: &str) -> Option<Self> {
        let (entry, refusal) = text.split_once('_').unwrap_or((text, ""));
        let entry = Some(entry).filter(|text| !text.is_empty()).map(str::parse).transpose().ok()?;
        let refusal = Some(refusal).filter(|text| !text.is_empty()).map(str::parse).transpose().ok()?;
        Some(Self { entry, refusal })
    }
}

impl fmt::Display for RequestCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(entry) = self.entry {
            entry.fmt(f)?;
        }
        match self.refusal {
            Some(refusal) => write!(f, "_{refusal}"),
            None => Ok(()),
        }
    }
}

impl Management {
    /// Finds the matching requests within reach after a position. A page may end before it is full.
    pub async fn find_requests(
        &self,
        reach: AccountReach,
        search: &RequestSearch,
        after: RequestCursor,
        limit: usize,
    ) -> Result<RequestPage, StoreError> {
        let billed = match &search.billed {
            Some(search) => self.find_entries(reach, search, after.entry, limit).await?,
            None => Found { found: Vec::new(), next: None },
        };
        let mut refused = match &search.refused {
            Some(filter) => {
                let filter = RefusedFilter { within: reach.group, ..filter.clone() };
                self.refused_calls(reach.account, &filter).await?
            }
            None => Vec::new(),
        };
        let refused_in_all = refused.len();
        refused.retain(|call| after.refusal.is_none_or(|shown| call.id < shown));
        // A paused search does not know what was billed earlier.
        let known_since = match billed.next {
            Some(place) if billed.found.len() < limit => {
                let at_place = self.latest_entries(reach.account, Some(place + 1), 1).await?;
                at_place.first().map(|entry| entry.entry.settlement.at)
            }
            Some(_) | None => None,
        };
        let mut merge = MergedRequests {
            paused_at: billed.next,
            known_since,
            billed: billed.found.into_iter().peekable(),
            refused: refused.into_iter().peekable(),
            place: after,
        };
        let found: Vec<_> = merge.by_ref().take(limit).collect();
        Ok(RequestPage { found, next: merge.rest(), refused: refused_in_all })
    }
}

/// Merges billed and refused requests into one list, newest first.
struct MergedRequests {
    billed: Peekable<vec::IntoIter<JournalEntry>>,
    refused: Peekable<vec::IntoIter<RefusedCall>>,
    /// Number of the entry after which more may match.
    paused_at: Option<u64>,
    /// Bills before this time have not been read yet.
    known_since: Option<Timestamp>,
    place: RequestCursor,
}

impl Iterator for MergedRequests {
    type Item = AnyRequest;

    fn next(&mut self) -> Option<AnyRequest> {
        let billed_at = self.billed.peek().map(|entry| entry.entry.settlement.at);
        let since = billed_at.max(self.known_since);
        if let Some(call) = self.refused.next_if(|call| since.is_none_or(|since| call.at() >= since)) {
            self.place.refusal = Some(call.id);
            return Some(AnyRequest::Refused(call));
        }
        let entry = self.billed.next()?;
        self.place.entry = Some(entry.number);
        Some(AnyRequest::Billed(Box::new(entry)))
    }
}

impl MergedRequests {
    /// Returns where to continue; `None` if nothing is left.
    fn rest(mut self) -> Option<RequestCursor> {
        let is_read = self.billed.peek().is_none();
        if is_read && self.refused.peek().is_none() && self.paused_at.is_none() {
            return None;
        }
        if is_read {
            // Entries without a match are not read again.
            self.place.entry = self.paused_at.or(self.place.entry);
        }
        Some(self.place)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use domain::{
        event::Actor,
        key::{ApiKey, KeyPatch},
        refused::RefusedSearch,
    };
    use shared::ids::{AccountId, GenerationId, KeyId};

    use super::*;
    use crate::{nouns::governed::Governed as _, testing::Office};
    use key_service_store::store::{
        Ledger as _,
        suite::{capture, hold},
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(Timestamp::parse(crate::testing::BEGIN).unwrap().millis() + second * 1_000)
    }

    async fn bill(office: &Office, account: AccountId, key: KeyId, second: i64) {
        let mut unique = [0; 10];
        unique[..8].copy_from_slice(&second.to_be_bytes());
        let generation = GenerationId::new(at(second), unique);
        let commands = vec![hold(key, generation, 10, 7), capture(key, generation, 10)];
        let outcomes = office.store.execute(account, commands, at(second)).await.unwrap();
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }

    #[tokio::test]
    async fn billed_and_refused_requests_are_one_list_in_the_order_of_time_whatever_the_pages() {
        let office = Office::open();
        let (account, _) = office.account("requests").await;
        let by = office.management.by(account, Actor::System);
        let key = ApiKey::create(by, KeyPatch::default(), None).await.unwrap().made.into_inner();
        let key = key.id;
        for second in (0..40).filter(|second| second % 3 != 0) {
            bill(&office, account, key, second).await;
        }
        let refused: Vec<_> = (0..40)
            .filter(|second| second % 3 == 0)
            .map(|second| RefusedCall {
                id: RefusalId::new(at(second), [1; 10]),
                key,
                reason: if second % 2 == 0 { "key_expired" } else { "spend_reserved" }.into(),
                model: None,
                origin: None,
            })
            .collect();
        office.store.add_refused_calls(account, &refused).await.unwrap();
        let reach = AccountReach::whole(account);
        let read = async |search: &RequestSearch, limit| {
            let (mut times, mut after, mut pages) = (Vec::new(), RequestCursor::default(), 0);
            loop {
                let page = office.management.find_requests(reach, search, after, limit).await.unwrap();
                times.extend(page.found.iter().map(|request| match request {
                    AnyRequest::Billed(entry) => entry.entry.settlement.at,
                    AnyRequest::Refused(call) => call.at(),
                }));
                pages += 1;
                let Some(next) = page.next else { return (times, pages) };
                assert_eq!(RequestCursor::parse(&next.to_string()), Some(next));
                after = next;
            }
        };
        let all =
            RequestSearch { billed: Some(EntrySearch::default()), refused: Some(RefusedFilter::default()) };
        let wanted: Vec<_> = (0..40).rev().map(at).collect();
        for limit in [1, 7, 40, 100] {
            assert_eq!(read(&all, limit).await.0, wanted, "{limit} a page");
        }
        let expired = RefusedSearch { reason: Some("key_expired".into()), ..RefusedSearch::default() };
        let refused = Some(RefusedFilter { search: expired, ..RefusedFilter::default() });
        let (found, _) = read(&RequestSearch { billed: None, refused }, 3).await;
        assert_eq!(found, (0..40).rev().filter(|second| second % 6 == 0).map(at).collect::<Vec<_>>());
        let (found, pages) = read(&RequestSearch { refused: None, ..all }, 50).await;
        assert_eq!((found.len(), pages, found.iter().collect::<HashSet<_>>().len()), (26, 1, 26));
    }

    #[test]
    fn a_text_that_is_no_cursor_is_refused() {
        for text in ["x", "1_2", "_", "1_ref_", "99999999999999999999"] {
            let is_read = RequestCursor::parse(text).is_some();
            assert_eq!(is_read, text == "_", "{text}");
        }
    }
}
