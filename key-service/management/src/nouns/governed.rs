//! What keys, groups, webhooks and alerts share: a row in the management API's table, and their operations.

use shared::{
    ids::AccountId,
    secret::SecretString,
    time::Timestamp,
    wire::{Object, Value},
};

use crate::{management::Management, nouns::listing::Listed};
pub use domain::governed::Made;
use domain::{event::Actor, governed::Refused, settings::Patch};
use key_service_store::store::Error;

/// Result of a request that creates an object or its secret.
#[derive(Debug)]
pub struct Issued<T> {
    pub made: Made<T>,
    /// Secret of the new object, if it has one. It cannot be recovered later.
    pub secret: Option<SecretString>,
}

impl<T> Issued<T> {
    /// Drops the secret unless the object is new, because an earlier object has a different secret.
    pub(crate) fn new(made: Made<T>, secret: SecretString) -> Self {
        let secret = matches!(made, Made::New(_)).then_some(secret);
        Self { made, secret }
    }
}

impl<T> From<Made<T>> for Issued<T> {
    fn from(made: Made<T>) -> Self {
        Self { made, secret: None }
    }
}

/// An account, and the actor who makes changes in it.
pub struct Acting<'a> {
    pub(crate) management: &'a Management,
    pub(crate) account: AccountId,
    pub(crate) actor: Actor,
}

pub type Acted<T> = Result<T, Error<Refused>>;

/// A kind of object that the management API manages.
pub trait Governed: Listed {
    /// Row in the management API's table of objects.
    type Object: Object;
    /// Settings for a new object, or changes to an existing one.
    type Settings: Patch<Field = <Self::Object as Object>::Fields> + Send;

    /// Returns the value of a field at this time.
    fn value(&self, field: <Self::Object as Object>::Fields, now: Timestamp) -> Value;

    /// Creates an object once for each idempotency key.
    fn create(
        by: Acting<'_>,
        settings: Self::Settings,
        idempotency_key: Option<String>,
    ) -> impl Future<Output = Acted<Issued<Self>>> + Send;

    fn fetch(by: Acting<'_>, id: Self::Id) -> impl Future<Output = Acted<Self>> + Send;

    /// Changes an object, completely or not at all.
    fn update(
        by: Acting<'_>,
        id: Self::Id,
        change: Self::Settings,
    ) -> impl Future<Output = Acted<Self>> + Send;

    /// Ends an object permanently; repeating this changes nothing.
    fn end(by: Acting<'_>, id: Self::Id) -> impl Future<Output = Acted<Self>> + Send;
}

impl Management {
    /// Returns a handle that acts on an account as this actor.
    pub const fn by(&self, account: AccountId, actor: Actor) -> Acting<'_> {
        Acting { management: self, account, actor }
    }
}
