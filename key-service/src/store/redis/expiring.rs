//! Records of members that expire, and counts of attempts.
//!
//! Records lie in the slot of their account. Removing a member removes no record: a record is read together with its
//! member, and is void without the member.

use std::time::Duration;

use async_trait::async_trait;
use redis::{RedisResult, cmd};
use shared::{
    ids::{AccountId, MemberId},
    time::Timestamp,
};

use super::{Redis, records::damaged, script::Arguments};
use crate::store::{Expiring, ExpiringRecord, RecordKind, StoreError};
use domain::{digest::Digest, member::Member};

/// Lifetime of a list of records since the last addition: longer than any record may live.
const LIST_LIFE: Duration = Duration::from_hours(31 * 24);

#[async_trait]
impl Expiring for Redis {
    async fn put_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let is_only = record.kind == RecordKind::Link;
        let arguments = Arguments::keys([
            self.key_space.record(account, record.kind, &record.name),
            self.key_space.records_of(account, record.kind, record.member),
        ])
        .with(written(&record))
        .with(lives(now, record.expires_at).to_string())
        .with(LIST_LIFE.as_millis().to_string())
        .with(u8::from(is_only).to_string());
        Ok(self.client.run(&self.scripts.put_record, &arguments).await?)
    }

    async fn record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        let found = self.client.ask(cmd("GET").arg(self.key_space.record(account, kind, &name))).await?;
        Ok(self.with_member(account, live(kind, name, found, now)?).await?)
    }

    async fn take_record(
        &self,
        account: AccountId,
        kind: RecordKind,
        name: Digest,
        now: Timestamp,
    ) -> Result<Option<(ExpiringRecord, Member)>, StoreError> {
        let taken: Option<String> =
            self.client.ask(cmd("GETDEL").arg(self.key_space.record(account, kind, &name))).await?;
        if taken.is_some() {
            // A link restored by a Redis that lost its latest writes would work twice.
            self.confirm_account(account).await?;
        }
        Ok(self.with_member(account, live(kind, name, taken, now)?).await?)
    }

    async fn replace_record(
        &self,
        account: AccountId,
        record: ExpiringRecord,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut put = cmd("SET");
        put.arg(self.key_space.record(account, record.kind, &record.name)).arg(written(&record));
        put.arg("XX").arg("PX").arg(lives(now, record.expires_at));
        Ok(self.client.ask(&put).await?)
    }

    async fn records(
        &self,
        account: AccountId,
        kind: RecordKind,
        member: MemberId,
        now: Timestamp,
    ) -> Result<Vec<ExpiringRecord>, StoreError> {
        let list = self.key_space.records_of(account, kind, member);
        let listed: Vec<String> = self.client.ask(cmd("SMEMBERS").arg(&list)).await?;
        let mut records = Vec::new();
        for key in listed {
            let name = digest_of(&key).ok_or_else(|| damaged("a list of records"))?;
            match live(kind, name, self.client.ask(cmd("GET").arg(&key)).await?, now)? {
                Some(record) => records.push(record),
                None => self.client.ask(cmd("SREM").arg(&list).arg(key)).await?,
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
        let arguments = Arguments::keys([self.key_space.attempts(&name)]);
        let arguments = arguments.with(lives(now, until).to_string());
        Ok(self.client.run(&self.scripts.count_attempt, &arguments).await?)
    }

    async fn take_attempt_back(&self, name: Digest) -> Result<(), StoreError> {
        let arguments = Arguments::keys([self.key_space.attempts(&name)]);
        Ok(self.client.run(&self.scripts.take_attempt_back, &arguments).await?)
    }

    async fn forget_attempts(&self, name: Digest) -> Result<(), StoreError> {
        Ok(self.client.ask(cmd("DEL").arg(self.key_space.attempts(&name))).await?)
    }
}

impl Redis {
    async fn with_member(
        &self,
        account: AccountId,
        record: Option<ExpiringRecord>,
    ) -> RedisResult<Option<(ExpiringRecord, Member)>> {
        let Some(record) = record else { return Ok(None) };
        let member = self.read_member(account, record.member).await?;
        Ok(member.map(|member| (record, member)))
    }
}

/// Stored form of a record.
fn written(record: &ExpiringRecord) -> String {
    format!("{} {} {}", record.member, record.expires_at.millis(), record.value)
}

/// Reads a stored record, unless expired.
fn live(
    kind: RecordKind,
    name: Digest,
    stored: Option<String>,
    now: Timestamp,
) -> RedisResult<Option<ExpiringRecord>> {
    let Some(stored) = stored else { return Ok(None) };
    let record = || {
        let mut parts = stored.splitn(3, ' ');
        let (member, expires_at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let (expires_at, value) = (Timestamp::from_millis(expires_at), parts.next()?.to_owned());
        Some(ExpiringRecord { kind, name, member, expires_at, value })
    };
    let record = record().ok_or_else(|| damaged("an expiring record"))?;
    Ok(Some(record).filter(|record| record.expires_at > now))
}

/// Reads the digest at the end of a record's key.
fn digest_of(key: &str) -> Option<Digest> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(key.rsplit(':').next()?, &mut bytes).ok()?;
    Some(Digest::from_bytes(bytes))
}

/// Milliseconds from `from` to `to`, at least 1.
fn lives(from: Timestamp, to: Timestamp) -> i64 {
    to.millis().saturating_sub(from.millis()).max(1)
}
