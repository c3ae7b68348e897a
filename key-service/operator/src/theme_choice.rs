//! The choice of theme in the personal menu.

use axum::response::Response;
use http::HeaderMap;
use key_service_page::{operator::NewOperatorAct, paths::OPERATOR};

pub(crate) async fn choose(
    headers: HeaderMap,
    NewOperatorAct { operator, form }: NewOperatorAct,
) -> Response {
    operator.browser.choose_theme(&form, &headers, OPERATOR)
}
