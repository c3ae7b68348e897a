//! Use-cases for webhooks: create, change, test, remove, and list the latest deliveries.

use async_trait::async_trait;
use shared::{
    clock::random_bytes,
    ids::{AccountId, EventId, WebhookId},
    secret::SecretString,
    time::Timestamp,
    wire::{ActorObject, EventObject, Noun, TEST_EVENT_TYPE, Value, WebhookField, WebhookObject},
};

use crate::{
    management::Management,
    nouns::{
        governed::{Acted, Acting, Governed, Issued},
        listing::{Listed, Listing, Paged},
        once::{Once, attempt, digest_of_request},
    },
};
use domain::{
    event::EventSearch,
    governed::Refused,
    webhook::{
        AddressRefused, Attempt, Delivery, Host, StoredWebhook, Webhook, WebhookPatch, WebhookUrl,
        may_connect,
    },
};
use key_service_store::store::{Error, EventSlice, StoreError};

/// Maximum number of webhooks in an account: one for each of its systems, with some to spare.
pub const MAX_WEBHOOKS: u64 = 20;
/// Maximum number of attempts to queue a test while the webhook is being changed.
const TEST_ATTEMPTS: u32 = 8;

impl Governed for Webhook {
    type Object = WebhookObject;
    type Settings = WebhookPatch;

    fn value(&self, field: WebhookField, _: Timestamp) -> Value {
        self.value(field)
    }

    /// Creates a webhook once for each idempotency key. Earlier events are not sent.
    async fn create(
        by: Acting<'_>,
        settings: WebhookPatch,
        idempotency_key: Option<String>,
    ) -> Acted<Issued<Self>> {
        let Acting { management, account, actor: _ } = by;
        let id = WebhookId::new(
            management.later_than_the_last(management.clock.now()),
            random_bytes(&*management.clock),
        );
        management.make_webhook(account, id, &settings, idempotency_key).await
    }

    async fn fetch(by: Acting<'_>, id: WebhookId) -> Acted<Self> {
        by.management.webhook(by.account, id).await
    }

    async fn update(by: Acting<'_>, id: WebhookId, change: WebhookPatch) -> Acted<Self> {
        let Acting { management, account, actor } = by;
        change.url.as_ref().map_or(Ok(()), |url| management.check_address(url))?;
        let only_disables =
            matches!(change, WebhookPatch { url: None, types: None, disabled: None | Some(Some(_)) });
        if !only_disables {
            management.check_room().await?;
        }
        management.store.update_webhook(account, id, change, &management.act(actor)).await
    }

    /// Removes a webhook and its waiting deliveries.
    async fn end(Acting { management, account, actor: _ }: Acting<'_>, id: WebhookId) -> Acted<Self> {
        management.store.delete_webhook(account, id).await
    }
}

impl Management {
    /// Creates a webhook, once for each attempt with the same settings.
    pub async fn create_webhook_once(
        &self,
        account: AccountId,
        settings: &WebhookPatch,
        attempt: &str,
    ) -> Result<Once<(Webhook, SecretString)>, Error<Refused>> {
        let Some(shown) = self.shown_at(attempt) else { return Ok(Once::Stale) };
        let bytes = self.bytes_of_attempt("webhook", account, attempt, &format!("{settings:?}"));
        let id = |at| WebhookId::new(at, bytes);
        let webhooks = self.store.webhooks(account).await?;
        if webhooks.iter().any(|stored| stored.webhook.id == id(stored.webhook.id.created_at())) {
            return Ok(Once::Replayed);
        }
        let Issued { made, secret } = self.make_webhook(account, id(shown), settings, None).await?;
        Ok(secret.map_or(Once::Replayed, |secret| Once::New((made.into_inner(), secret))))
    }

    async fn make_webhook(
        &self,
        account: AccountId,
        id: WebhookId,
        settings: &WebhookPatch,
        idempotency_key: Option<String>,
    ) -> Acted<Issued<Webhook>> {
        // Settings without a URL were refused when they were read.
        let url =
            settings.url.clone().ok_or_else(|| StoreError::Conflict("a webhook has no URL".to_owned()))?;
        self.check_address(&url)?;
        self.check_room_for_secret().await?;
        let secret = self.credentials.webhook_secret(id);
        let now = self.clock.now();
        let (digest, created_at) = (secret.digest(), now.to_whole_seconds());
        let blank = Webhook { id, url, types: None, secret: digest, created_at, disabled: None };
        let webhook = blank.with(settings, created_at);
        let last = self.store.events(account, EventSearch::default(), EventSlice::latest(1)).await?.found;
        let cursor = last.first().map_or(0, |event| event.number);
        let new = StoredWebhook { webhook: webhook.clone(), cursor };
        let request = digest_of_request("webhook", |field| webhook.value(field));
        let attempt = attempt(idempotency_key, request, now);
        let made = self.store.create_webhook(account, new, MAX_WEBHOOKS, attempt).await?;
        Ok(Issued::new(made, secret.plaintext()))
    }

    /// Lists the account's webhooks, oldest first.
    pub async fn webhooks(&self, account: AccountId) -> Result<Vec<Webhook>, StoreError> {
        let webhooks = self.store.webhooks(account).await?;
        Ok(webhooks.into_iter().map(|stored| stored.webhook).collect())
    }

    /// Finds a webhook of the account.
    pub async fn webhook(&self, account: AccountId, id: WebhookId) -> Result<Webhook, Error<Refused>> {
        Ok(self.stored_webhook(account, id).await?.webhook)
    }

    async fn stored_webhook(
        &self,
        account: AccountId,
        id: WebhookId,
    ) -> Result<StoredWebhook, Error<Refused>> {
        let webhooks = self.store.webhooks(account).await?;
        let found = webhooks.into_iter().find(|stored| stored.webhook.id == id);
        found.ok_or(Error::Refused(Refused::NotFound(Noun::Webhook)))
    }

    /// Queues a `webhook.test` event for a webhook, even a disabled one, and returns the event as JSON. The event is
    /// sent once.
    pub async fn test_webhook(&self, account: AccountId, id: WebhookId) -> Result<String, Error<Refused>> {
        self.check_room().await?;
        let now = self.clock.now();
        let event = EventId::new(now, random_bytes(&*self.clock));
        let body = test_event(event, id, now);
        for _ in 0..TEST_ATTEMPTS {
            let stored = self.stored_webhook(account, id).await?;
            let delivery = Delivery::new(event, None, TEST_EVENT_TYPE.to_owned(), body.clone(), now);
            let cursor = stored.cursor;
            if self.store.fan_out(account, stored, cursor, vec![delivery]).await? {
                return Ok(body);
            }
        }
        Err(Error::Store(StoreError::Busy("the webhook has too many waiting deliveries")))
    }

    /// Lists the latest attempts to deliver events to a webhook, newest first.
    pub async fn attempts(&self, account: AccountId, id: WebhookId) -> Result<Vec<Attempt>, Error<Refused>> {
        self.webhook(account, id).await?;
        Ok(self.store.attempts(account, id).await?)
    }

    /// Refuses a literal address that would never be connected to. A host name is accepted here, and checked at each
    /// attempt.
    fn check_address(&self, url: &WebhookUrl) -> Result<(), Error<Refused>> {
        self.judge_address(url).map_err(|refused| Error::Refused(Refused::Address(refused)))
    }

    /// Judges a literal address. A host name is accepted here, and checked at each attempt.
    pub(crate) fn judge_address(&self, url: &WebhookUrl) -> Result<(), AddressRefused> {
        match url.host() {
            Host::Literal(address) => may_connect(*address, url.host(), &self.webhook_networks),
            Host::Name(_) => Ok(()),
        }
    }
}

/// Returns a test event as JSON.
fn test_event(id: EventId, webhook: WebhookId, now: Timestamp) -> String {
    let actor = ActorObject { r#type: "system".to_owned(), id: None, name: None };
    let data = serde_json::value::to_raw_value(&serde_json::json!({ "webhook_id": webhook }));
    let event = data.and_then(|data| {
        let (object, r#type) = ("event".to_owned(), TEST_EVENT_TYPE.to_owned());
        let (created_at, key_id, group_id) = (now, None, None);
        serde_json::to_string(&EventObject { id, object, r#type, created_at, actor, key_id, group_id, data })
    });
    // Texts and ids always serialize, so the default is never used.
    event.unwrap_or_default()
}

#[async_trait]
impl Listed for Webhook {
    type Id = WebhookId;
    type Filter = ();
    const NAME: &'static str = "a webhook";

    fn id(&self) -> WebhookId {
        self.id
    }

    async fn page(management: &Management, account: AccountId, listing: &Listing<Self>) -> Paged<Self> {
        listing.page_of(management.webhooks(account).await?)
    }
}
