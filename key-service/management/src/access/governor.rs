//! Callers of the management API: who governs, and which part of the account.

use shared::{
    ids::{AccountId, GroupId, KeyId},
    key::Class,
    refusal::Refusal,
};

use crate::{error::Error, management::Management};
use domain::{
    access::{Access, Effect, Forbidden, Subject, may},
    event::Actor,
    ledger::GroupChain,
};
use key_service_credentials::Identified;
use key_service_store::store::{ManagementKey, StoreError};

/// A management key that governs, with the effect of the present request.
#[derive(Clone, Debug)]
pub struct Governor {
    pub account: AccountId,
    /// The management key, as the actor of events.
    pub actor: Actor,
    /// Rights of the management key.
    pub access: Access,
    pub effect: Effect,
}

impl Governor {
    /// Judges the request by its object.
    pub fn may(&self, subject: Subject) -> Result<(), Error<Forbidden>> {
        may(self.access, self.effect, subject).map_err(Error::Refused)
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
        governor.may(Subject::Key(self.chain(governor, group).await?))
    }

    /// Judges the request by the keys of a group.
    pub async fn judge_keys_of(&self, governor: &Governor, group: GroupId) -> Result<(), Error<Forbidden>> {
        governor.may(Subject::Key(self.chain(governor, Some(group)).await?))
    }

    /// Reads a group with its parent. The parent is read only if a judgement needs it.
    async fn chain(&self, governor: &Governor, group: Option<GroupId>) -> Result<GroupChain, StoreError> {
        let Some(id) = group.filter(|_| governor.access.group.is_some() && group != governor.access.group)
        else {
            return Ok([group, None]);
        };
        let found = self.store.group(governor.account, id).await?;
        Ok([group, found.and_then(|group| group.spend.parent)])
    }
}
