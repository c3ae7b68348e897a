//! The choice of theme in the personal menu.

use axum::response::Response;
use http::HeaderMap;
use key_service_page::{paths::HOME, session::Act};

pub(crate) async fn choose(headers: HeaderMap, Act { viewer, form }: Act) -> Response {
    viewer.browser.choose_theme(&form, &headers, HOME)
}
