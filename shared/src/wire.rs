//! The management API on the wire: types that the key-service reads and writes, and that the gateway describes in
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
pub use field::{
    AlertField, Bound, DefaultField, Field, Fields, GroupField, Input, KeyField, Kind, WebhookField,
};
pub use noun::{Noun, Reach};
pub use path::*;
pub use reading::{
    AttemptList, AttemptObject, BillObject, Credits, MessageList, MessageObject, OwnGroup, RefusalObject,
    RevokedKeys, UsageList, UsageObject,
};
pub use route::{Endpoint, MAX_TOP, NounAct, ROUTES, Route};
pub use schema::{AlertObject, GroupObject, KeyObject, Object, WebhookObject};
pub use value::{Kept, Limit, LimitWindow, Raise, Value};
