//! Objects in responses, written from the table of fields.

use serde::{Serialize, Serializer, ser::SerializeMap};
use shared::{
    ids::GenerationId,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
    wire::{
        BillObject, Fields, GroupField, GroupObject, KeyField, KeyObject, Object, OwnGroup, Value,
        WebhookField, WebhookObject,
    },
};

use domain::{event::Event, group::Group, key::ApiKey, webhook::Webhook};
use key_service_management::{generations::Bill, listing::Listed};

/// An object as clients read it.
pub trait Shown: Listed {
    /// The object at this time.
    fn shown(&self, now: Timestamp) -> impl Serialize + Send + '_;
}

impl Shown for ApiKey {
    fn shown(&self, now: Timestamp) -> impl Serialize + Send + '_ {
        ShownKey { key: self, now, more: None }
    }
}

impl Shown for Group {
    fn shown(&self, now: Timestamp) -> impl Serialize + Send + '_ {
        ShownGroup { group: self, now }
    }
}

impl Shown for Event {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        self.object()
    }
}

impl Shown for Bill {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        let Self { generation, settlement } = self;
        let [group, _] = settlement.payer.groups;
        BillObject {
            id: *generation,
            object: "generation",
            key_id: settlement.payer.key,
            group_id: group,
            model: &settlement.payer.model,
            prompt_tokens: settlement.usage.prompt,
            cached_tokens: settlement.usage.cached,
            completion_tokens: settlement.usage.completion,
            cost: settlement.cost,
            charged: settlement.charged,
            shortfall: settlement.cost.left_after(settlement.charged),
            ending: settlement.ending.as_str(),
            estimated: settlement.estimated,
            created_at: created_at(*generation),
        }
    }
}

impl Shown for Webhook {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        ShownWebhook { webhook: self, secret: None }
    }
}

/// The webhook with the secret, shown only in the answer to the creation.
pub fn with_secret<'a>(webhook: &'a Webhook, secret: &'a SecretString) -> impl Serialize + 'a {
    ShownWebhook { webhook, secret: Some(secret) }
}

struct ShownWebhook<'a> {
    webhook: &'a Webhook,
    secret: Option<&'a SecretString>,
}

impl Serialize for ShownWebhook<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        let value = |field: WebhookField| self.webhook.value(field);
        members_of::<WebhookObject, S>(&mut members, &self.webhook.id, value)?;
        if let Some(secret) = self.secret {
            members.serialize_entry("secret", secret.expose_secret())?;
        }
        members.end()
    }
}

fn created_at(generation: GenerationId) -> Timestamp {
    generation.created_at().to_whole_seconds()
}

/// The key with a new plaintext, shown only in the answer to the creation or the rotation.
pub fn with_plaintext<'a>(
    key: &'a ApiKey,
    plaintext: &'a SecretString,
    now: Timestamp,
) -> impl Serialize + 'a {
    ShownKey { key, now, more: Some(More::Plaintext(plaintext)) }
}

/// The key with its group and the group's parent, shown to the holder of the key.
pub fn with_group<'a>(key: &'a ApiKey, group: Option<&'a OwnGroup>, now: Timestamp) -> impl Serialize + 'a {
    ShownKey { key, now, more: Some(More::Group(group)) }
}

/// Id and name of a group with this parent.
pub fn own_group(group: &Group, parent: Option<&Group>) -> OwnGroup {
    let parent = parent.map(|parent| Box::new(own_group(parent, None)));
    OwnGroup { id: group.id, name: group.name.clone(), parent }
}

struct ShownKey<'a> {
    key: &'a ApiKey,
    now: Timestamp,
    more: Option<More<'a>>,
}

/// A member that only some answers have.
enum More<'a> {
    Plaintext(&'a SecretString),
    Group(Option<&'a OwnGroup>),
}

impl Serialize for ShownKey<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        let value = |field: KeyField| self.key.value(field, self.now);
        members_of::<KeyObject, S>(&mut members, &self.key.id, value)?;
        match self.more {
            Some(More::Plaintext(plaintext)) => members.serialize_entry("key", plaintext.expose_secret())?,
            Some(More::Group(group)) => members.serialize_entry("group", &group)?,
            None => {}
        }
        members.end()
    }
}

struct ShownGroup<'a> {
    group: &'a Group,
    now: Timestamp,
}

impl Serialize for ShownGroup<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        let value = |field: GroupField| self.group.value(field, self.now);
        members_of::<GroupObject, S>(&mut members, &self.group.id, value)?;
        members.end()
    }
}

fn members_of<O: Object, S: Serializer>(
    members: &mut S::SerializeMap,
    id: &impl Serialize,
    value: impl Fn(O::Fields) -> Value,
) -> Result<(), S::Error> {
    members.serialize_entry("id", id)?;
    members.serialize_entry("object", O::OBJECT)?;
    for field in O::Fields::all() {
        members.serialize_entry(field.row().name, &value(field))?;
    }
    Ok(())
}
