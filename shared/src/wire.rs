//! The management API as it is sent. The key-service reads and writes these types, and the gateway describes them in
//! `/openapi.json`.

mod bounds;
mod event;
mod field;
mod kind;
mod money;
mod noun;
mod operator;
mod operator_route;
mod path;
mod reading;
mod route;
mod schema;
mod value;

pub use bounds::*;
pub use event::{ActorObject, EVENT_TYPES, EventObject, OPERATOR_EVENT_TYPES, TEST_EVENT_TYPE};
pub use field::{
    AccountField, AlertField, Bound, DefaultField, Field, Fields, GroupField, Input, KeyField, Kind,
    ManagementKeyField, MemberField, SuspensionField, WebhookField,
};
pub use money::{GroupPaymentBody, GroupRefundBody, MoneyField, PayingFields, PaymentBody, RefundBody};
pub use noun::{Noun, Reach};
pub use operator::{
    AccountObject, AccountTotals, ManagementKeyObject, MemberObject, OperatorEndpoint, OperatorScope,
};
pub use operator_route::OPERATOR_ROUTES;
pub use path::*;
pub use reading::{
    AttemptList, AttemptObject, BillObject, Credits, MessageList, MessageObject, OwnGroup, PaymentObject,
    RefusalObject, RevokedKeys, UsageList, UsageObject,
};
pub use route::{Endpoint, MAX_TOP, NounAct, ROUTES, Route};
pub use schema::{AlertObject, GroupObject, KeyObject, Object, WebhookObject};
pub use value::{Kept, Limit, LimitWindow, Raise, Value};
