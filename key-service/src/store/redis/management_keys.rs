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
    /// Makes a management key, unless the account has as many as it may. Returns whether there is one; `None` where the account
    /// does not exist.
    pub(super) async fn make_management_key(
        &self,
        NewManagementKey { account, key, digest, most }: &NewManagementKey,
    ) -> RedisResult<Option<bool>> {
        let mut arguments = Arguments::keys([
            self.key_space.account(*account),
            self.key_space.management_keys(*account),
            self.key_space.management_key(*account, key.id),
        ]);
        arguments.value(key.id.to_string());
        arguments.value(most.to_string());
        records::write_management_key(&mut arguments, key);
        let made: Option<bool> = self.client.run(&self.scripts.create_management_key, &arguments).await?;
        if made != Some(true) {
            return Ok(made);
        }
        self.confirm_account(*account).await?;
        let mut put = cmd("SET");
        put.arg(self.key_space.owner(key.id)).arg(account.to_string());
        self.client.ask::<()>(&put).await?;
        self.confirm(&put).await?;
        self.put_credential(digest, Principal::ManagementKey(*account, key.id)).await?;
        Ok(made)
    }

    /// Reads all management keys of an account.
    pub(super) async fn read_management_keys(&self, account: AccountId) -> RedisResult<Vec<ManagementKey>> {
        let list = self.key_space.management_keys(account);
        let ids: Vec<String> = self.client.ask(cmd("ZRANGE").arg(list).arg("0").arg("-1")).await?;
        let parse = |id: &String| id.parse().map_err(|_| damaged("a management key's id"));
        let ids = ids.iter().map(parse).collect::<RedisResult<Vec<ManagementKeyId>>>()?;
        let names: Vec<String> = ids.iter().map(|id| self.key_space.management_key(account, *id)).collect();
        let keys = ids.iter().zip(self.read_hashes(&names).await?);
        let keys = keys.map(|(id, fields)| records::read_management_key(*id, &fields));
        keys.filter_map(Result::transpose).collect()
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
