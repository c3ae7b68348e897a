//! Records of members that expire by themselves, and counts of attempts.
//!
//! A record lies in the slot of its account. Removing a member removes no record: records are read together with the
//! member, and are void without the member.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use redis::cmd;
use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use super::{
    Redis,
    records::{self, damaged},
    script::{Arguments, Transaction},
};
use crate::store::{Expiring, ExpiringRecord, RecordKind, StoreError};
use domain::{
    digest::Digest,
    event::{Act, EventKind},
    member::Member,
};

/// Lifetime of a member's list of records since the last addition: longer than any record may live.
const LIST_LIFE: Duration = Duration::from_hours(31 * 24);
/// Field of a list whose record takes the place of the one before.
const LATEST: &[u8] = b"latest";

#[async_trait]
impl Expiring for Redis {
    async fn put_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        act: &Act,
    ) -> Result<(), StoreError> {
        let list = self.key_space.records_of(account, record.kind, record.member);
        let list_life = LIST_LIFE.as_millis().to_string();
        match record.kind {
            RecordKind::Link => {
                let mut put = Transaction::new();
                put.command(&self.write(account, &record, act.at));
                put.command(&[b"HSET", list.as_bytes(), LATEST, record.name.as_bytes()]);
                put.command(&["PEXPIRE", &list, &list_life]);
                Ok(self.client.run(&self.scripts.transaction, &put.arguments()).await?)
            }
            RecordKind::Session => {
                let [_, name, value, _, life] = self.write(account, &record, act.at);
                let begin = Arguments::keys([name, list]).with(value).with(life);
                let begin = begin.with(*record.name.as_bytes()).with(list_life);
                let signed_in = EventKind::MemberSignedIn { member_id: record.member };
                let begin = self.with_event(begin, account, Some(&act.event(0, None, None, signed_in)));
                Ok(self.client.run(&self.scripts.begin_session, &begin).await?)
            }
        }
    }

    async fn record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        let Some(record) = self.find_record(account, kind, name, now, "").await? else { return Ok(None) };
        let member = self.member(account, record.member).await?;
        Ok(member.map(|member| (record, member)))
    }

    async fn take_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        let Some(record) = self.find_record(account, kind, name, now, "take").await? else { return Ok(None) };
        // A record restored by a Redis that lost its latest writes could be taken twice.
        self.confirm_account(account).await?;
        let member = self.member(account, record.member).await?;
        Ok(member.map(|member| (record, member)))
    }

    async fn replace_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut replace = Transaction::if_exists(self.key_space.record(account, record.kind, &record.name));
        replace.command(&self.write(account, &record, now));
        Ok(self.client.run(&self.scripts.transaction, &replace.arguments()).await?)
    }

    async fn records(
        &self,
        account: AccountId,
        kind: RecordKind,
        member: MemberId,
        now: Timestamp,
    ) -> Result<Vec<ExpiringRecord>, StoreError> {
        let list = self.key_space.records_of(account, kind, member);
        let listed: HashMap<Vec<u8>, Vec<u8>> = self.client.ask(cmd("HGETALL").arg(&list)).await?;
        let mut records = Vec::new();
        for (field, name) in listed {
            let name = <[u8; 32]>::try_from(name).map_err(|_| damaged("a list of records"))?;
            match self.find_record(account, kind, Digest::from_bytes(name), now, "").await? {
                Some(record) => records.push(record),
                None => self.client.ask(cmd("HDEL").arg(&list).arg(field)).await?,
            }
        }
        Ok(records)
    }

    async fn remove_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
    ) -> Result<(), StoreError> {
        self.client.ask::<()>(cmd("DEL").arg(self.key_space.record(account, kind, &name))).await?;
        Ok(self.confirm_account(account).await?)
    }

    async fn count_attempt(&self, name: Digest, now: Timestamp, until: Timestamp) -> Result<u64, StoreError> {
        let attempt = Arguments::keys([self.key_space.attempts(&name)]).with("1").with(life(now, until));
        Ok(self.client.run(&self.scripts.count_attempt, &attempt).await?)
    }

    async fn take_attempt_back(&self, name: Digest) -> Result<(), StoreError> {
        // The count has an expiry since its first attempt.
        let attempt = Arguments::keys([self.key_space.attempts(&name)]).with("-1").with("1");
        Ok(self.client.run(&self.scripts.count_attempt, &attempt).await?)
    }

    async fn forget_attempts(&self, name: Digest) -> Result<(), StoreError> {
        Ok(self.client.ask(cmd("DEL").arg(self.key_space.attempts(&name))).await?)
    }
}

impl Redis {
    /// Command that stores a record until its expiry.
    fn write(&self, account: AccountId, record: &ExpiringRecord, now: Timestamp) -> [String; 5] {
        let name = self.key_space.record(account, record.kind, &record.name);
        [
            "SET".to_owned(),
            name,
            records::write_expiring(record),
            "PX".to_owned(),
            life(now, record.expires_at),
        ]
    }

    /// Finds a record that has not expired and was not replaced, and removes the record where `take` is not empty.
    async fn find_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
        take: &str,
    ) -> Result<Option<ExpiringRecord>, StoreError> {
        let find = Arguments::keys([self.key_space.record(account, kind, &name)]).with(take);
        let stored: Option<String> = self.client.run(&self.scripts.find_record, &find).await?;
        let Some(stored) = stored else { return Ok(None) };
        let record = records::read_expiring(kind, name, &stored)?;
        let list = self.key_space.records_of(account, kind, record.member);
        let latest: Option<Vec<u8>> = self.client.ask(cmd("HGET").arg(list).arg(LATEST)).await?;
        let is_replaced = latest.is_some_and(|latest| latest != name.as_bytes());
        Ok((!is_replaced && record.expires_at > now).then_some(record))
    }
}

/// Milliseconds from `from` to `to`, at least 1.
fn life(from: Timestamp, to: Timestamp) -> String {
    to.millis().saturating_sub(from.millis()).max(1).to_string()
}
