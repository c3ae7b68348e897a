//! The management API as it is sent. The key-service reads and writes these types, and the gateway describes them in
//! `/openapi.json`.

mod bounds;
mod event;
mod field;
mod kind;
mod noun;
mod path;
mod reading;
mod route;
mod schema;
mod value;

pub use bounds::*;
pub use event::{ActorObject, EVENT_TYPES, EventObject, TEST_EVENT_TYPE};
pub use field::{Bound, DefaultField, Field, Fields, GroupField, Input, KeyField, Kind, WebhookField};
pub use noun::{Noun, Reach};
pub use path::*;
pub use reading::{
    AttemptList, AttemptObject, BillObject, Credits, OwnGroup, RefusalObject, RevokedKeys, UsageList,
    UsageObject,
};
pub use route::{Endpoint, MAX_TOP, NounAct, ROUTES, Route};
pub use schema::{GroupObject, KeyObject, Object, WebhookObject};
pub use value::{Kept, Limit, LimitWindow, Raise, Value};
