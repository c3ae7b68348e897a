//! The dashboard: pages for an account's members, over the same use-cases as the management API.
//!
//! Each page is a handler with its template, in the folder of its subject, and a route here. The extractors of
//! [`key_service_page::session`] check the member's rights. A handler that only reads takes a `Viewer` or an `Owner`;
//! if leads of groups may see the page too, it takes a `KeysViewer` and reads only what that member may see. A handler
//! that changes something takes an `Act`, a `KeysAct` or, for owners only, an `OwnerAct`: a form with a valid session,
//! CSRF token and origin.

use std::sync::Arc;

use axum::{
    Router,
    extract::Path,
    middleware,
    response::Response,
    routing::{any, get, post},
};
use key_service_management::Management;
use key_service_page::{
    app::{App, Site},
    area::{Area as _, choose_display, no_such_page, secure, sign_out},
    assets,
    layout::FIND,
    paths::{ACTIVITY, GROUPS, HOME, KEYS, MANAGEMENT_KEYS, MARGIN, SIGN_IN, YOU},
    second_factor::enable,
    session::Viewer,
    sign_in::{open_link, with_link},
};
use key_service_ranges::{
    file, list,
    spend::{FILE, LIST},
};
use shared_catalog::Catalog;
use shared_config::current::Current;

mod activity;
mod alerts;
mod api_keys;
mod events;
/// Groups: the list, the page of a group, and actions on groups.
mod group {
    pub(crate) mod acts;
    pub(crate) mod groups;
}
mod home;
mod management_keys;
/// Money: credit and statements, margins, and models with their prices.
mod money {
    pub(crate) mod credit;
    pub(crate) mod margin;
    pub(crate) mod models;
}
/// Members, and a member's own sign-in.
mod people {
    pub(crate) mod change_role;
    pub(crate) mod members;
    mod roles;
    pub(crate) mod second_factor;
    pub(crate) mod sign_in;
    pub(crate) mod you;
}
mod refused;
mod tabs;
mod webhooks;

use api_keys::{key, keys, many_keys, rotation, search};
use group::{acts, groups};
use home::{find, overview, trouble, try_it};
use money::{credit, margin, models};
use people::{change_role, members, second_factor, sign_in, sign_in::Dashboard, you};

/// Returns the routes of the dashboard.
pub fn router(management: Arc<Management>, catalog: Arc<Current<Catalog>>, site: Site) -> Router {
    let app = App::new(management, catalog, site);
    let pages = Router::new()
        .route(HOME, get(overview::show))
        .route(trouble::MUTE, post(overview::mute))
        .route(trouble::UNMUTE, post(overview::unmute))
        .route(SIGN_IN, get(sign_in::show).post(sign_in::with_password))
        .route(sign_in::LINK, get(sign_in::link).post(open_link::<Dashboard>))
        .route(Dashboard::USES_LINK, post(with_link::<Dashboard>))
        .route(sign_in::CODE, post(sign_in::with_code))
        .route("/dashboard/sign-out", post(sign_out::<Dashboard>))
        .route(FIND, get(find::show).post(find::find))
        .route("/dashboard/theme", post(choose_display::<Viewer>))
        .route(MANAGEMENT_KEYS, get(management_keys::list).post(management_keys::create))
        .route(
            "/dashboard/management-keys/{id}/revoke",
            get(management_keys::confirm).post(management_keys::revoke),
        )
        .merge(keys_and_groups())
        .route(ACTIVITY, get(activity::show))
        .route(FILE, get(file::csv))
        .route(LIST, get(list::show))
        .route("/dashboard/activity/{id}", get(activity::one))
        .route("/dashboard/activity.csv", get(activity::csv))
        .route("/dashboard/activity.jsonl", get(activity::json_lines))
        .route("/dashboard/models", get(models::show))
        .route(MARGIN, get(margin::show))
        .route("/dashboard/credit", get(credit::show))
        .route(margin::FILE, get(margin::csv))
        .route("/dashboard/credit.csv", get(credit::csv))
        .route("/dashboard/credit/{month}", get(credit::statement))
        .route("/dashboard/members", get(members::list).post(members::invite))
        .route("/dashboard/members/{id}/link", post(members::make_link))
        .route("/dashboard/members/{id}", get(members::show))
        .route("/dashboard/members/{id}/role", get(change_role::show).post(change_role::change))
        .route(
            "/dashboard/members/{id}/second-factor",
            get(members::confirm_second_factor).post(members::remove_second_factor),
        )
        .route("/dashboard/members/{id}/remove", get(members::confirm).post(members::remove))
        .route("/dashboard/events", get(events::show))
        .route("/dashboard/webhooks", get(webhooks::list).post(webhooks::create))
        .route("/dashboard/webhooks/{id}", get(webhooks::show))
        .route("/dashboard/webhooks/{id}/test", post(webhooks::test))
        .route("/dashboard/webhooks/{id}/enabled", post(webhooks::set_enabled))
        .route("/dashboard/webhooks/{id}/delete", get(webhooks::confirm).post(webhooks::delete))
        .route("/dashboard/alerts", get(alerts::list).post(alerts::create))
        .route("/dashboard/alerts/{id}", get(alerts::show))
        .route("/dashboard/alerts/{id}/test", post(alerts::test))
        .route("/dashboard/alerts/{id}/enabled", post(alerts::set_enabled))
        .route("/dashboard/alerts/{id}/delete", get(alerts::confirm).post(alerts::delete))
        .route("/dashboard/try-it", get(try_it::show))
        .route(YOU, get(you::show))
        .route("/dashboard/you/password", post(you::set_password))
        .route(Dashboard::SECOND_FACTOR, get(second_factor::show).post(enable::<Dashboard>))
        .route("/dashboard/you/second-factor/off", post(second_factor::disable))
        .route("/dashboard/you/sessions/{id}/end", post(you::end_session))
        .route("/dashboard/{*rest}", any(no_such_page))
        .method_not_allowed_fallback(no_such_page)
        .with_state(app.clone())
        .layer(middleware::from_fn_with_state(app, secure::<Dashboard>));
    Router::new().route("/dashboard/assets/{name}", get(asset)).merge(pages)
}

fn keys_and_groups() -> Router<App> {
    Router::new()
        .route(KEYS, get(keys::list).post(keys::create))
        .route("/dashboard/keys/new", get(keys::new))
        .route(search::SEARCH, post(search::search))
        .route(many_keys::CONFIRM, post(many_keys::confirm))
        .route(many_keys::APPLY, post(many_keys::apply))
        .route("/dashboard/keys/{id}", get(key::show).post(key::update))
        .route("/dashboard/keys/{id}/requests", get(key::requests))
        .route("/dashboard/keys/{id}/settings", get(key::settings))
        .route("/dashboard/keys/{id}/enabled", post(key::set_enabled))
        .route("/dashboard/keys/{id}/use", get(key::use_it))
        .route("/dashboard/keys/{id}/rotate", get(rotation::show).post(rotation::rotate))
        .route("/dashboard/keys/{id}/revoke", get(key::confirm).post(key::revoke))
        .route(GROUPS, get(groups::list).post(acts::create))
        .route("/dashboard/groups/new", get(acts::new))
        .route("/dashboard/groups/{id}", get(groups::show).post(acts::update))
        .route("/dashboard/groups/{id}/requests", get(groups::requests))
        .route("/dashboard/groups/{id}/settings", get(acts::settings))
        .route("/dashboard/groups/{id}/use", get(groups::use_it))
        .route("/dashboard/groups/{id}/archive", get(acts::confirm_archiving).post(acts::archive))
        .route("/dashboard/groups/{id}/revoke-keys", get(acts::confirm_revoking).post(acts::revoke_keys))
}

async fn asset(Path(name): Path<String>) -> Response {
    assets::answer(&name)
}

#[cfg(test)]
mod tests;
