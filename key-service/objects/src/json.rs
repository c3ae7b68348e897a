//! Writes the objects of responses from the table of fields.

use serde::{Serialize, Serializer, ser::SerializeMap};
use shared::{
    ids::GenerationId,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
    wire::{BillObject, Fields, Object, OwnGroup, RefusalObject},
};

use domain::{alert::Alert, event::Event, group::Group, key::ApiKey, refused::RefusedCall, webhook::Webhook};
use key_service_management::{generations::Bill, governed::Governed, listing::Listed};

/// An object as the API shows it.
pub trait Shown: Listed {
    /// Returns the object as the API shows it at this time.
    fn shown(&self, now: Timestamp) -> impl Serialize + Send + '_;
}

/// Implements [`Shown`] from each noun's row.
macro_rules! shown {
    ($($noun:ident),+) => {
        $(impl Shown for $noun {
            fn shown(&self, now: Timestamp) -> impl Serialize + Send + '_ {
                ShownObject { object: self, now, more: None }
            }
        })+
    };
}

shown!(ApiKey, Group, Webhook, Alert);

impl Shown for Event {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        self.object()
    }
}

impl Shown for Bill {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        let Self { generation, settlement } = self;
        let [group, _] = settlement.payer.groups;
        let (origin, course) = (settlement.origin.as_deref(), settlement.course.as_deref());
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
            dialect: origin.map(|origin| origin.api),
            stream: origin.map(|origin| origin.stream),
            user: settlement.user(),
            request_id: settlement.request(),
            upstream: settlement.upstream(),
            finish_reason: course.and_then(|course| course.finish_reason),
            authorized_ms: course.and_then(|course| course.authorized_ms),
            first_token_ms: course.and_then(|course| course.first_token_ms),
            latency_ms: course.and_then(|course| course.latency_ms),
            created_at: created_at(*generation),
        }
    }
}

impl Shown for RefusedCall {
    fn shown(&self, _: Timestamp) -> impl Serialize + Send + '_ {
        let origin = self.origin.as_deref();
        RefusalObject {
            id: self.id,
            object: "refusal",
            key_id: self.key,
            reason: &self.reason,
            model: self.model.as_deref(),
            dialect: origin.map(|origin| origin.api),
            stream: origin.map(|origin| origin.stream),
            user: self.user(),
            request_id: self.request(),
            created_at: self.at().to_whole_seconds(),
        }
    }
}

fn created_at(generation: GenerationId) -> Timestamp {
    generation.created_at().to_whole_seconds()
}

/// Returns the object with its secret. Only one response contains the secret.
pub fn with_secret<'a, T: Governed>(
    object: &'a T,
    secret: &'a SecretString,
    now: Timestamp,
) -> impl Serialize + 'a {
    ShownObject { object, now, more: Some(More::Secret(secret)) }
}

/// Returns the key for its holder, with the key's group and the group's parent.
pub fn with_group<'a>(key: &'a ApiKey, group: Option<&'a OwnGroup>, now: Timestamp) -> impl Serialize + 'a {
    ShownObject { object: key, now, more: Some(More::Group(group)) }
}

/// Returns the ids and names of a group and of its parent.
pub fn own_group(group: &Group, parent: Option<&Group>) -> OwnGroup {
    let parent = parent.map(|parent| Box::new(own_group(parent, None)));
    OwnGroup { id: group.id, name: group.name.clone(), parent }
}

struct ShownObject<'a, T> {
    object: &'a T,
    now: Timestamp,
    more: Option<More<'a>>,
}

/// A member that only some responses have.
enum More<'a> {
    Secret(&'a SecretString),
    Group(Option<&'a OwnGroup>),
}

impl<T: Governed> Serialize for ShownObject<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("id", &self.object.id())?;
        members.serialize_entry("object", T::Object::OBJECT)?;
        for field in <T::Object as Object>::Fields::all() {
            members.serialize_entry(field.row().name, &self.object.value(field, self.now))?;
        }
        match (&self.more, T::Object::ONCE) {
            (Some(More::Secret(secret)), Some((name, _))) => {
                members.serialize_entry(name, secret.expose_secret())?;
            }
            (Some(More::Group(group)), _) => members.serialize_entry("group", group)?,
            (Some(More::Secret(_)), None) | (None, _) => {}
        }
        members.end()
    }
}
