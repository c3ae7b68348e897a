//! Searches API keys. A text that may be a secret stays out of addresses, which browsers and proxies record.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use shared::{ids::Principal, key::without_keys};

use domain::{
    access::{Effect, Subject},
    key::{Condition, Status},
};
use key_service_management::reading::{KeyOrder, KeySearch};
use key_service_page::{
    app::App,
    failure::Failure,
    form::{Fields, with},
    notice,
    paths::{KEYS, MANAGEMENT_KEYS},
    session::{Act, Viewer},
};
use key_service_store::store::StoreError;

/// Path of the form that searches.
pub(crate) const SEARCH: &str = "/dashboard/keys/search";

/// Sort orders of the list, with their names in the address and on the page. No order is by label, because the store
/// has no such index.
pub(crate) const ORDERS: [(KeyOrder, &str, &str); 4] = [
    (KeyOrder::Newest, "", "Newest first"),
    (KeyOrder::Oldest, "asc", "Oldest first"),
    (KeyOrder::MostSpent, "spent", "Most spent first"),
    (KeyOrder::LastUsed, "used", "Last used first"),
];

/// Length from which a text of letters and digits may be a secret even without a known prefix.
const SECRET_CHARS: usize = 24;

/// Reads the filters and the order of a list of keys. The search begins with the first key.
pub(crate) fn search_of(query: &Fields, limit: usize) -> Result<KeySearch, Failure> {
    let order = ORDERS.iter().find(|(_, name, _)| *name == query.get("order"));
    Ok(KeySearch {
        after: None,
        order: order.map_or(KeyOrder::Newest, |(order, _, _)| *order),
        status: Status::parse(query.get("status")),
        condition: Condition::parse(query.get("status")),
        group: query.id("group")?,
        text: query.filled("q").unwrap_or_default().to_owned(),
        limit,
    })
}

/// Redirects a plaintext to its key, and anything else to the list with the filters in its address. A text that no
/// label contains stays out of the address, because it may be a secret.
pub(crate) async fn search(State(app): State<App>, Act { viewer, form }: Act) -> Result<Response, Failure> {
    viewer.may(Effect::Read, Subject::Keys)?;
    let text = form.get("q").trim();
    if let Some(found) = of_plaintext(&app, &viewer, text).await? {
        return Ok(found);
    }
    let filters = ["q", "status", "group", "order"].map(|name| (name, form.get(name).trim().to_owned()));
    let filters = Fields::of(filters);
    if !text.is_empty() && is_in_no_label(&app, &viewer, text).await? {
        let list = format!("{KEYS}?{}", filters.only(&["status", "group", "order"]).query());
        return Ok(notice::done(&viewer, &list, "No API key's label contains what you searched for."));
    }
    let query = with(&filters, "token", "");
    Ok(Redirect::to(&format!("{KEYS}?{query}")).into_response())
}

async fn is_in_no_label(app: &App, viewer: &Viewer, text: &str) -> Result<bool, StoreError> {
    let search = KeySearch { text: text.to_owned(), limit: 1, ..KeySearch::default() };
    let first = app.management.find_keys(viewer.reach(), &search).await?;
    Ok(first.found.is_empty() && first.next.is_none())
}

/// Answer to a plaintext that belongs to no key.
const UNKNOWN: &str = "No key of this account has, or had, that plaintext.";

/// Redirects a plaintext to its key, and a text that only looks like a secret to the list of keys with a notice.
/// Returns `None` for any other text.
pub(crate) async fn of_plaintext(
    app: &App,
    viewer: &Viewer,
    text: &str,
) -> Result<Option<Response>, Failure> {
    let found = app.management.key_of_plaintext(viewer.reach(), text).await?;
    let said = "The plaintext that you searched for is this key's, or was before a rotation.";
    Ok(match found {
        Some(Principal::ApiKey(_, id)) => Some(notice::done(viewer, &format!("{KEYS}/{id}"), said)),
        Some(Principal::ManagementKey(_, id)) => {
            Some(notice::done(viewer, &format!("{MANAGEMENT_KEYS}/{id}/revoke"), said))
        }
        // An operator key belongs to no account, so there is no page to show.
        Some(Principal::OperatorKey(..)) => Some(notice::done(viewer, KEYS, UNKNOWN)),
        None if is_secret(text) => Some(notice::done(viewer, KEYS, UNKNOWN)),
        None => None,
    })
}

/// Returns whether a text may be a secret, which must not get into an address.
fn is_secret(text: &str) -> bool {
    let is_random = text.len() >= SECRET_CHARS
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().any(|byte| byte.is_ascii_digit());
    is_random || without_keys(text) != text
}

#[cfg(test)]
mod tests {
    use shared::{ids::KeyId, time::Timestamp};

    use super::*;

    #[test]
    fn plaintexts_stand_in_no_address_and_labels_and_ids_do() {
        for secret in [
            "fg_api_0123456789abcdefghij",
            "sk-proj-0123456789abcdefgh",
            "0123456789abcdef0123456789abcdef",
            "whsec_BwcHBwcHBwcHBwcH/wcHB+cHBwcHBwcHBwcHBwcHBwc=",
        ] {
            assert!(is_secret(secret), "{secret}");
        }
        let id = KeyId::new(Timestamp::from_millis(0), [7; 10]).to_string();
        for text in ["", "customer-northwind-production-eu-west-1", "Customer 07", "fg_api_0123…cdef", &id]
        {
            assert!(!is_secret(text), "{text}");
        }
    }
}
