//! What keys, groups and webhooks have in common: a row of the management API, and its operations.

use shared::{
    ids::AccountId,
    secret::SecretString,
    time::Timestamp,
    wire::{Object, Value},
};

use crate::{
    error::Error,
    management::Management,
    nouns::{listing::Listed, refused::Refused},
};
use domain::{event::Actor, settings::Patch};

/// Result of a request that creates an object or its secret.
#[derive(Debug)]
pub enum Made<T> {
    /// The new object, with its secret if it has one, which cannot be recovered later.
    New(T, Option<SecretString>),
    /// The object existed before and stays unchanged.
    Existing(T),
    /// An earlier attempt with the same idempotency key created the object, and the secret is gone.
    Replayed(T),
}

/// An actor in an account.
pub struct Acting<'a> {
    pub(crate) management: &'a Management,
    pub(crate) account: AccountId,
    pub(crate) actor: Actor,
}

pub type Acted<T> = Result<T, Error<Refused>>;

/// A kind of object that owners manage.
pub trait Governed: Listed {
    /// Row in the management API's table of objects.
    type Object: Object;
    /// Settings of a new object, or changes of an existing one.
    type Settings: Patch<Field = <Self::Object as Object>::Fields> + Send;

    /// Returns the value of a field at this time.
    fn value(&self, field: <Self::Object as Object>::Fields, now: Timestamp) -> Value;

    /// Creates an object once for each idempotency key.
    fn create(
        by: Acting<'_>,
        settings: Self::Settings,
        idempotency_key: Option<String>,
    ) -> impl Future<Output = Acted<Made<Self>>> + Send;

    fn fetch(by: Acting<'_>, id: Self::Id) -> impl Future<Output = Acted<Self>> + Send;

    /// Changes an object, completely or not at all.
    fn update(
        by: Acting<'_>,
        id: Self::Id,
        change: Self::Settings,
    ) -> impl Future<Output = Acted<Self>> + Send;

    /// Permanently ends an object; a repetition changes nothing.
    fn end(by: Acting<'_>, id: Self::Id) -> impl Future<Output = Acted<Self>> + Send;
}

impl Management {
    /// Lets this actor act on an account.
    pub const fn by(&self, account: AccountId, actor: Actor) -> Acting<'_> {
        Acting { management: self, account, actor }
    }
}
