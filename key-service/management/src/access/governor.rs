//! Callers of the management API (management keys and members) with their rights.

use shared::{
    ids::{AccountId, GroupId, KeyId, Principal},
    key::Class,
    refusal::Refusal,
};

use crate::{management::Management, nouns::reach::AccountReach};
use domain::{
    access::{Access, Effect, Forbidden, Subject, may},
    event::Actor,
    key::KeyPatch,
    ledger::Standing,
};
use key_service_credentials::Identified;
use key_service_store::store::{Error, ManagementKey};

/// The caller of a management request, and what it may do.
#[derive(Clone, Debug)]
pub struct Governor {
    pub account: AccountId,
    /// The management key, operator key or member, as the actor of events.
    pub actor: Actor,
    pub access: Access,
    pub effect: Effect,
}

impl Governor {
    /// Checks whether the request may affect this object.
    pub fn may(&self, subject: Subject) -> Result<(), Error<Forbidden>> {
        may(self.access, self.effect, subject).map_err(Error::Refused)
    }

    /// Returns whether the caller is an operator key.
    pub const fn is_operator(&self) -> bool {
        matches!(self.actor, Actor::OperatorKey { .. })
    }

    /// Returns the part of the account that the caller may see.
    pub const fn reach(&self) -> AccountReach {
        AccountReach { account: self.account, group: self.access.group }
    }
}

impl Management {
    /// Authenticates a management key and records its use. Also returns the key's account, and the account's standing
    /// if an operator has recorded one.
    pub async fn authenticate(
        &self,
        presented: &str,
    ) -> Result<(AccountId, ManagementKey, Option<Standing>), Error<Refusal>> {
        let (owner, now) = (self.credentials.find(presented).await?, self.clock.now());
        match self.credentials.identify(owner, Class::Management, now).await? {
            Identified::ManagementKey(account, key, standing) => {
                let used = Principal::ManagementKey(account, key.id);
                self.last_uses.note(&self.store, used, key.last_used_at, now.to_whole_seconds());
                Ok((account, key, standing))
            }
            Identified::ApiKey(..) => Err(Error::Refused(Refusal::ManagementKeyRequired)),
            Identified::OperatorKey(_) => Err(Error::Refused(Refusal::OperatorKeyNotAllowed)),
            Identified::Refused(refusal) => Err(Error::Refused(refusal)),
        }
    }

    /// Checks whether the request may affect this key. Right after the check, another request may still move the key to
    /// another group.
    pub async fn judge_key(&self, governor: &Governor, id: KeyId) -> Result<(), Error<Forbidden>> {
        let group = match governor.access.group {
            Some(_) => self.store.key(governor.account, id).await?.and_then(|key| key.spend.group),
            None => None,
        };
        governor.may(Subject::Key(self.chain(governor.reach(), group).await?))
    }

    /// Checks whether the request may affect the keys of a group.
    pub async fn judge_keys_of(&self, governor: &Governor, group: GroupId) -> Result<(), Error<Forbidden>> {
        governor.may(Subject::Key(self.chain(governor.reach(), Some(group)).await?))
    }

    /// Checks the group that the request puts a key into. A new key without a group goes into the caller's group.
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
