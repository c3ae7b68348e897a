//! Suspends, restores and closes accounts.

use domain::{
    event::{Act, EventKind},
    governed::registry::RegistryRefused,
    ledger::{Standing, StandingAct},
};
use key_service_ledger::{Change, StoreError, stored::AccountLabelsRecord};
use shared::ids::AccountId;

use crate::{
    error::Error,
    store::{base::Store, layout},
};

impl Store {
    /// Suspends, restores or closes an account, with an event. Repeating this changes nothing.
    pub async fn change_standing(
        &self,
        account: AccountId,
        to: &StandingAct,
        act: &Act,
    ) -> Result<(), Error<RegistryRefused>> {
        let decide = |change: &mut Change<'_>| {
            let name = layout::account_labels();
            let has_profile = change.has(&layout::account_profile());
            let labels = change.get::<AccountLabelsRecord>(&name)?.unwrap_or_default();
            let before = change.account()?.filter(|_| has_profile);
            let before = before.ok_or(Error::Refused(RegistryRefused::NotFound))?;
            let after = before.after(to, act.at.to_whole_seconds());
            let after = after.map_err(|refused| Error::Refused(RegistryRefused::Standing(refused)))?;
            if after == before {
                return Ok(());
            }
            change.set_account(after);
            let (suspended_reason, kind) = match to {
                StandingAct::Suspend(reason) => {
                    (Some(reason.clone()), EventKind::AccountSuspended { reason: reason.clone() })
                }
                StandingAct::Restore => (None, EventKind::AccountRestored {}),
                StandingAct::Close => (labels.suspended_reason.clone(), EventKind::AccountClosed {}),
            };
            change.put(&name, AccountLabelsRecord { suspended_reason, ..labels });
            change.event(act.event(0, None, None, kind));
            Ok(())
        };
        self.lanes.change(account, decide).await
    }

    /// Returns whether an account is suspended or closed; `None` while it is active, and for an unknown account.
    pub async fn standing(&self, account: AccountId) -> Result<Option<Standing>, StoreError> {
        Ok(self.account_money(account).await?.and_then(|account| account.money.standing))
    }
}
