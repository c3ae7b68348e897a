//! Alarms that a member does not want to see for a week.

use std::time::Duration;

use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use crate::management::Management;
use domain::{alarm::AlarmCounts, digest::Digest, event::Actor};
use key_service_store::store::{ExpiringRecord, RecordKind, StoreError};

const MUTED_FOR: Duration = Duration::from_hours(7 * 24);
const KIND: RecordKind = RecordKind::MutedAlarms;

/// Muted alarms, with the counts at the time of muting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MutedAlarms {
    pub counts: AlarmCounts,
    pub until: Timestamp,
}

impl Management {
    /// Mutes these alarms for a member for a week, replacing the alarms that were muted before.
    pub async fn mute_alarms(
        &self,
        account: AccountId,
        member: MemberId,
        counts: &AlarmCounts,
    ) -> Result<(), StoreError> {
        let act = self.act(Actor::System);
        let (name, expires_at) = (name_of(member), act.at.plus(MUTED_FOR));
        let record = ExpiringRecord { kind: KIND, name, member, expires_at, value: counts.to_string() };
        self.store.remove_record(account, KIND, name).await?;
        self.store.put_record(account, record, &act).await
    }

    /// Shows all alarms to a member again.
    pub async fn unmute_alarms(&self, account: AccountId, member: MemberId) -> Result<(), StoreError> {
        self.store.remove_record(account, KIND, name_of(member)).await
    }

    /// Returns the alarms that a member has muted; `None` if there are none.
    pub async fn muted_alarms(
        &self,
        account: AccountId,
        member: MemberId,
    ) -> Result<Option<MutedAlarms>, StoreError> {
        let found = self.store.record(account, KIND, name_of(member), self.clock.now()).await?;
        // Alarms that only a newer version knows are skipped, and so remain visible.
        let muted = |(record, _): (ExpiringRecord, _)| {
            let counts = AlarmCounts::parse(&record.value)?;
            Some(MutedAlarms { counts, until: record.expires_at })
        };
        Ok(found.and_then(muted))
    }
}

/// Returns the name of the record with a member's muted alarms. Each member has at most one such record.
fn name_of(member: MemberId) -> Digest {
    Digest::of(member.as_bytes())
}

#[cfg(test)]
mod tests {
    use domain::{alarm::Alarm, member::Role};

    use super::*;
    use crate::testing::Office;

    #[tokio::test]
    async fn a_member_mutes_alarms_for_a_week_and_nobody_else_does_not_see_them() {
        let office = Office::open();
        let (account, _) = office.account("acme").await;
        let management = &office.management;
        let add =
            async |name| management.add_member(account, name, Role::Owner, Actor::System).await.unwrap().id;
        let (ann, ben) = (add("ann").await, add("ben").await);
        let of = |count| AlarmCounts::new([(Alarm::OutOfBudget, count)]);
        let muted =
            async |member| management.muted_alarms(account, member).await.unwrap().map(|muted| muted.counts);
        assert_eq!(muted(ann).await, None);
        management.mute_alarms(account, ann, &of(3)).await.unwrap();
        management.mute_alarms(account, ann, &of(5)).await.unwrap();
        assert_eq!((muted(ann).await, muted(ben).await), (Some(of(5)), None));
        office.clock.set("2026-11-28T02:11:05Z");
        assert_eq!(muted(ann).await, None, "the week is over");
        management.mute_alarms(account, ann, &of(5)).await.unwrap();
        management.unmute_alarms(account, ann).await.unwrap();
        assert_eq!(muted(ann).await, None);
        let audit = management.audit(account).await.unwrap().unwrap();
        assert!(audit.wrong.is_empty(), "{audit:?}");
    }
}
