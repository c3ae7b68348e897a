//! Management keys.

use redis::{RedisResult, cmd};
use shared::{
    ids::{AccountId, ManagementKeyId},
    rpc::Principal,
    time::Timestamp,
};

use super::{
    Redis,
    records::{self, Fields, damaged},
    script::Arguments,
};
use crate::store::{ManagementKey, NewManagementKey};

impl Redis {
    /// Makes a management key. Returns whether the account exists.
    pub(super) async fn make_management_key(
        &self,
        NewManagementKey { account, key, digest }: &NewManagementKey,
    ) -> RedisResult<bool> {
        let mut arguments = Arguments::keys([
            self.key_space.account(*account),
            self.key_space.management_keys(*account),
            self.key_space.management_key(*account, key.id),
        ]);
        arguments.value(key.id.to_string());
        records::write_management_key(&mut arguments, key);
        if !self.client.run::<bool>(&self.scripts.create_management_key, &arguments).await? {
            return Ok(false);
        }
        self.confirm_account(*account).await?;
        let mut put = cmd("SET");
        put.arg(self.key_space.owner(key.id)).arg(account.to_string());
        self.client.ask::<()>(&put).await?;
        self.confirm(&put).await?;
        self.put_credential(digest, Principal::ManagementKey(*account, key.id)).await?;
        Ok(true)
    }

    /// Reads all management keys of an account, of which there are few.
    pub(super) async fn read_management_keys(&self, account: AccountId) -> RedisResult<Vec<ManagementKey>> {
        let list = self.key_space.management_keys(account);
        let ids: Vec<String> = self.client.ask(cmd("ZRANGE").arg(list).arg("0").arg("-1")).await?;
        let mut keys = Vec::with_capacity(ids.len());
        for id in ids {
            let id = id.parse().map_err(|_| damaged("a management key's id"))?;
            keys.extend(self.read_management_key(account, id).await?);
        }
        Ok(keys)
    }

    pub(super) async fn read_management_key(
        &self,
        account: AccountId,
        id: ManagementKeyId,
    ) -> RedisResult<Option<ManagementKey>> {
        let key: Fields =
            self.client.ask(cmd("HGETALL").arg(self.key_space.management_key(account, id))).await?;
        records::read_management_key(id, &key)
    }

    pub(super) async fn end_management_key(
        &self,
        id: ManagementKeyId,
        now: Timestamp,
    ) -> RedisResult<Option<ManagementKey>> {
        let owner: Option<String> = self.client.ask(cmd("GET").arg(self.key_space.owner(id))).await?;
        let Some(owner) = owner else { return Ok(None) };
        let account = owner.parse().map_err(|_| damaged("the owner of a management key"))?;
        let key = Arguments::keys([self.key_space.management_key(account, id)]);
        let key: Fields =
            self.client.run(&self.scripts.revoke_management_key, &key.with(now.millis().to_string())).await?;
        self.confirm_account(account).await?;
        records::read_management_key(id, &key)
    }
}
