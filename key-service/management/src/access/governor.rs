//! Those who govern: callers of the management API, and members, with their rights.

use shared::{
    ids::{AccountId, GroupId, KeyId},
    key::Class,
    refusal::Refusal,
};

use crate::{error::Error, management::Management, nouns::reach::AccountReach};
use domain::{
    access::{Access, Effect, Forbidden, Subject, may},
    event::Actor,
    key::KeyPatch,
};
use key_service_credentials::Identified;
use key_service_store::store::ManagementKey;

/// A management key or a member that governs, with the effect of the present request.
#[derive(Clone, Debug)]
pub struct Governor {
    pub account: AccountId,
    /// The management key or the member, as the actor of events.
    pub actor: Actor,
    pub access: Access,
    pub effect: Effect,
}

impl Governor {
    /// Judges the request by its object.
    pub fn may(&self, subject: Subject) -> Result<(), Error<Forbidden>> {
        may(self.access, self.effect, subject).map_err(Error::Refused)
    }

    /// The part of the account that the caller reaches.
    pub const fn reach(&self) -> AccountReach {
        AccountReach { account: self.account, group: self.access.group }
    }
}

impl Management {
    /// Finds the account that a presented management key governs, and the key. The use of the key is recorded.
    pub async fn authenticate(&self, presented: &str) -> Result<(AccountId, ManagementKey), Error<Refusal>> {
        let (owner, now) = (self.credentials.find(presented).await?, self.clock.now());
        match self.credentials.identify(owner, Class::Management, now).await? {
            Identified::ManagementKey(account, key) => {
                self.last_uses.note(&self.store, account, &key, now.to_whole_seconds());
                Ok((account, key))
            }
            Identified::ApiKey(..) => Err(Error::Refused(Refusal::ManagementKeyRequired)),
            Identified::Refused(refusal) => Err(Error::Refused(refusal)),
        }
    }

    /// Judges the request by a key of the account. Another request may still move the key to another group right after.
    pub async fn judge_key(&self, governor: &Governor, id: KeyId) -> Result<(), Error<Forbidden>> {
        let group = match governor.access.group {
            Some(_) => self.store.key(governor.account, id).await?.and_then(|key| key.spend.group),
            None => None,
        };
        governor.may(Subject::Key(self.chain(governor.reach(), group).await?))
    }

    /// Judges the request by the keys of a group.
    pub async fn judge_keys_of(&self, governor: &Governor, group: GroupId) -> Result<(), Error<Forbidden>> {
        governor.may(Subject::Key(self.chain(governor.reach(), Some(group)).await?))
    }

    /// Judges the request by the group in which it puts a key, and puts a new key without one into the caller's.
    pub async fn place_key(
        &self,
        governor: &Governor,
        settings: &mut KeyPatch,
        is_new: bool,
    ) -> Result<(), Error<Forbidden>> {
        if is_new && governor.access.group.is_some() && settings.group.flatten().is_none() {
            settings.group = Some(governor.access.group);
        }
        match settings.group {
            None => Ok(()),
            // A key without a group belongs to the account.
            Some(None) => governor.may(Subject::Account),
            Some(Some(group)) => self.judge_keys_of(governor, group).await,
        }
    }
}
