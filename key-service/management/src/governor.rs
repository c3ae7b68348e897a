//! Those who govern: callers of the management API, and members, with their rights.

use shared::{ids::AccountId, key::Class, refusal::Refusal};

use super::{Error, Management};
use domain::{
    access::{Access, Effect, Forbidden, Subject, may},
    event::Actor,
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
}
