//! Finds the last sign-in of each member among the kept events.

use std::collections::HashMap;

use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use crate::management::Management;
use domain::{
    event::{EventKind, EventSearch},
    member::Member,
};
use key_service_store::store::{EventSlice, Found, NumberedEvent, StoreError};

/// Maximum number of sign-in events to read: about a week's worth for a hundred members.
const SIGN_INS_READ: usize = 500;

/// When a member last signed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastSignIn {
    At(Timestamp),
    /// The member was invited, but has not signed in.
    Never,
    /// The member has not signed in since this time. Earlier events were dropped, or are too many to read.
    NotSince(Timestamp),
}

impl Management {
    /// Returns the last sign-in of each of these members.
    pub async fn last_sign_ins(
        &self,
        account: AccountId,
        members: &[Member],
    ) -> Result<HashMap<MemberId, LastSignIn>, StoreError> {
        let _permit = self.read_permit(account).await?;
        let search = EventSearch { kind: Some("member.signed_in"), ..EventSearch::default() };
        let Found { found, next } =
            self.store.events(account, search, EventSlice::latest(SIGN_INS_READ)).await?;
        let looked_through = self.begin_of_events(account, next.map_or(0, |number| number - 1)).await?;
        let mut last: HashMap<MemberId, Timestamp> = HashMap::new();
        for NumberedEvent { event, .. } in found {
            if let EventKind::MemberSignedIn { member_id } = event.kind {
                last.entry(member_id).or_insert(event.at);
            }
        }
        let of = |member: &Member| match (last.get(&member.id), looked_through) {
            (Some(at), _) => LastSignIn::At(*at),
            (None, Some(since)) if since > member.created_at => LastSignIn::NotSince(since),
            (None, Some(_) | None) => LastSignIn::Never,
        };
        Ok(members.iter().map(|member| (member.id, of(member))).collect())
    }

    /// Returns the time of the first kept event after a number; `None` if no earlier event was dropped.
    async fn begin_of_events(&self, account: AccountId, after: u64) -> Result<Option<Timestamp>, StoreError> {
        let page = self.store.events_after(account, after, 1).await?;
        let is_whole = after == 0 && page.gone_until == 0;
        Ok(page.events.first().filter(|_| !is_whole).map(|first| first.event.at))
    }
}
