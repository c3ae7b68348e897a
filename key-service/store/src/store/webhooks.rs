//! Webhooks of accounts. Their deliveries are in `webhooks/deliveries.rs`.

mod deliveries;
pub(crate) mod records;

use ::records::{Space, Write};
use key_service_ledger::{
    Change, StoreError,
    stored::{IdList, PendingDeliveries, WebhookAccount, WebhookRecord},
};
use shared::{
    ids::{AccountId, WebhookId},
    wire::Noun,
};

use crate::{
    data::Idempotency,
    error::Error,
    store::{
        accounts::insert_id,
        base::Store,
        idempotency::OnceRequest,
        layout,
        webhooks::records::{
            attempts, delivery, list, pending, read_pending, read_webhook, unreadable, webhook, write_webhook,
        },
    },
};
use domain::{
    event::Act,
    governed::{Made, Refused},
    webhook::{StoredWebhook, Webhook, WebhookPatch},
};

/// The kind of spaces in which accounts with webhooks or alerts are listed.
const ACCOUNTS: &str = "webhooks";

impl Store {
    /// Creates a webhook in an existing account that has fewer than `most` webhooks, unless the idempotency key is in
    /// use. Repeating this changes nothing.
    pub async fn create_webhook(
        &self,
        account: AccountId,
        new: StoredWebhook,
        most: u64,
        idempotency: Option<Idempotency>,
    ) -> Result<Made<Webhook>, Error<Refused>> {
        // The account is listed first: a listed account may have no webhooks, but an account with webhooks must be
        // listed.
        self.list_webhook_account(account).await?;
        let attempt = OnceRequest { account, makes: *new.webhook.id.as_bytes(), idempotency };
        self.make_once(attempt, made, |change| create(change, account, &new, most)).await
    }

    /// Lists the account's webhooks, oldest first.
    pub async fn webhooks(&self, account: AccountId) -> Result<Vec<StoredWebhook>, StoreError> {
        let space = layout::space(account);
        let listed = self.read().get::<IdList<WebhookId>>(&space, list()).await?.unwrap_or_default();
        let names = listed.ids.iter().map(|id| webhook(*id)).collect();
        let found = self.read().get_all(&space, names).await?;
        // A webhook that was removed in the meantime is left out.
        let found = listed.ids.into_iter().zip(found);
        Ok(found.filter_map(|(id, found)| Some(read_webhook(id, found?))).collect())
    }

    /// Changes a webhook as [`StoredWebhook::with`] does. If this disables the webhook, its deliveries are dropped.
    pub async fn update_webhook(
        &self,
        account: AccountId,
        id: WebhookId,
        patch: WebhookPatch,
        act: &Act,
    ) -> Result<Webhook, Error<Refused>> {
        self.lanes
            .change(account, |change| {
                let waiting = change.get::<PendingDeliveries>(&pending(id))?;
                let before = found(change, id)?;
                let waiting = waiting.unwrap_or_default();
                let deliveries: Vec<_> = waiting.deliveries.iter().map(read_pending).collect();
                let after = before.clone().with(&patch, deliveries.iter(), act.at);
                change.put(&webhook(id), write_webhook(&after));
                if after.webhook.disabled.is_some() {
                    drop_deliveries(change, id, &waiting);
                }
                if let Some(end) = after.webhook.end_since(&before.webhook) {
                    change.event(act.event(0, None, None, end));
                }
                Ok(after.webhook)
            })
            .await
    }

    /// Removes a webhook with its deliveries and attempts, and returns it.
    pub async fn delete_webhook(&self, account: AccountId, id: WebhookId) -> Result<Webhook, Error<Refused>> {
        self.lanes
            .change(account, |change| {
                let waiting = change.get::<PendingDeliveries>(&pending(id))?.unwrap_or_default();
                let mut listed = change.get::<IdList<WebhookId>>(&list())?.unwrap_or_default();
                let before = found(change, id)?;
                listed.ids.retain(|other| *other != id);
                change.put(&list(), listed);
                change.remove(&webhook(id));
                change.remove(&attempts(id));
                drop_deliveries(change, id, &waiting);
                Ok(before.webhook)
            })
            .await
    }

    /// Lists the accounts that have webhooks or alerts. Accounts that had them earlier may be listed too.
    pub async fn accounts_with_webhooks(&self) -> Result<Vec<AccountId>, StoreError> {
        let mut accounts = Vec::new();
        for part in layout::parts(ACCOUNTS) {
            for (account, _) in self.all_of_set(&part, layout::WEBHOOK_ACCOUNTS).await? {
                let account = AccountId::from_slice(&account);
                accounts.push(account.ok_or_else(|| unreadable("the accounts with webhooks"))?);
            }
        }
        // An account may appear on several pages.
        accounts.sort_unstable();
        accounts.dedup();
        Ok(accounts)
    }

    pub(crate) async fn list_webhook_account(&self, account: AccountId) -> Result<(), StoreError> {
        let space: Space = layout::part_of(ACCOUNTS, account.as_bytes());
        let name = layout::name(layout::WEBHOOK_ACCOUNTS, *account.as_bytes());
        self.change(&space, |view| {
            if !view.has(&name) {
                view.put(&name, WebhookAccount {});
            }
            Ok(())
        })
        .await
    }
}

/// Creates a webhook in an account that has fewer than `most` other webhooks. Repeating this changes nothing.
fn create(
    change: &mut Change<'_>,
    account: AccountId,
    new: &StoredWebhook,
    most: u64,
) -> Result<Made<Webhook>, Error<Refused>> {
    if change.account()?.is_none() {
        return Err(StoreError::no_account(account).into());
    }
    let id = new.webhook.id;
    let mut listed = change.get::<IdList<WebhookId>>(&list())?.unwrap_or_default();
    let others = listed.ids.iter().filter(|other| **other != id).count();
    if others as u64 >= most {
        return Err(Refused::TooMany(Noun::Webhook, most).into());
    }
    if others == listed.ids.len() {
        insert_id(&mut listed, id);
        change.put(&list(), listed);
        change.presume_absent(&webhook(id));
        change.put(&webhook(id), write_webhook(new));
    }
    Ok(Made::New(new.webhook.clone()))
}

/// Finds the webhook that a request created. The webhook may have been removed since then. Even then, the repeated
/// request does not create another webhook.
fn made(change: &mut Change<'_>, id: [u8; 16]) -> Result<Webhook, Error<Refused>> {
    let id = WebhookId::from_slice(&id).ok_or_else(|| unreadable("an idempotency key"))?;
    Ok(found(change, id)?.webhook)
}

fn found(change: &mut Change<'_>, id: WebhookId) -> Result<StoredWebhook, Error<Refused>> {
    let found = change.get::<WebhookRecord>(&webhook(id))?;
    Ok(read_webhook(id, found.ok_or(Refused::NotFound(Noun::Webhook))?))
}

/// Removes all deliveries of a webhook. The guard on the record of waiting deliveries protects them against concurrent
/// changes.
fn drop_deliveries(change: &mut Change<'_>, id: WebhookId, waiting: &PendingDeliveries) {
    for waiting in &waiting.deliveries {
        change.write(Write::Remove(delivery(id, waiting.event).into()));
    }
    change.remove(&pending(id));
}
