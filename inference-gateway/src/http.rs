//! Public routes of the gateway.

mod app;
mod caller;
mod cors;
mod count_tokens;
mod describe;
mod dialect;
mod management;
mod model_call;
mod model_pages;
mod observe;
mod openapi;
mod passthrough;
mod rate_headers;
mod router;
mod routes;

pub(crate) use app::App;
pub(crate) use management::Management;
pub(crate) use router::routes;
