//! Pages about operator keys: the list, and creating, rotating and revoking a key. Creating or rotating a key requires
//! a second-factor code, so that a stolen session cannot obtain a key.

mod form;

use std::time::Duration;

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use domain::key::Status;
use http::StatusCode;
use key_service_page::{
    app::App,
    entry::{Entered, Fault},
    failure::Failure,
    form::Fields,
    frame::hidden,
    notice,
    operator::{Operator, OperatorAct},
    person::ActOf,
    second_factor::{code_field, fault as code_fault},
    show::{copyable, new_key, scrolled_table, status, time, time_or, usd},
};
use key_service_store::store::OperatorKey;
use maud::{Markup, html};
use shared::{
    ids::OperatorKeyId,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
    wire::OperatorScope,
};

use crate::layout::{KEYS, Section, page};
use form::{fault, form, read};

/// Grace periods that the page offers, in seconds.
const GRACES: [(u64, &str); 5] = [
    (0, "no longer"),
    (3_600, "for an hour"),
    (86_400, "for a day"),
    (604_800, "for a week"),
    (2_592_000, "for 30 days"),
];

pub(crate) async fn list(State(app): State<App>, operator: Operator) -> Result<Response, Failure> {
    let fields = form::proposed(app.management.now());
    whole(&app, &operator, Entered::new(&fields)).await
}

async fn whole(app: &App, operator: &Operator, entered: Entered<'_>) -> Result<Response, Failure> {
    let (keys, now) = (app.management.operator_keys().await?, app.management.now());
    let (live, ended): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| key.status(now) == Status::Active);
    let content = html! {
        p.lead { "Programs govern the installation with operator keys, through the operator API. Only operators make them, here or with a command." }
        @if live.is_empty() { p.empty { "There are no operator keys." } } @else { (table(&live, now)) }
        @if !ended.is_empty() {
            details { summary { "Ended (" (ended.len()) ")" } (table(&ended, now)) }
        }
        h2 { "New operator key" }
        (form(operator, entered))
    };
    Ok(page(operator, Section::Keys, "Operator keys", &content))
}

fn table(keys: &[OperatorKey], now: Timestamp) -> Markup {
    let head = html! {
        th scope="col" { "Name" } th.wide-only scope="col" { "Key" } th.wide-only scope="col" { "May" }
        th.wide-only scope="col" { "Networks" } th.wide-only scope="col" { "Expires" }
        th.wide-only scope="col" { "Last used" } th.wide-only scope="col" { "Status" }
        th scope="col" { span.hidden { "Actions" } }
    };
    let rows = html! {
        @for key in keys.iter().rev() {
            @let is_live = key.status(now) == Status::Active;
            tr.gone[!is_live] {
                th scope="row" {
                    bdi { (key.name) }
                    p.narrow-only { code { (key.hint) } }
                    p.narrow-only { (scopes(&key.rights.scopes)) }
                    p.narrow-only { (status(key.status(now))) }
                    p.narrow-only { "expires " (time_or(key.end(), "never")) }
                    p.narrow-only { "used " (time_or(key.last_used_at, "never")) }
                }
                td.wide-only { code { (key.hint) } }
                td.wide-only.wraps { (may(key)) }
                td.wide-only.wraps { (networks(key)) }
                td.wide-only { (time_or(key.end(), "never")) }
                td.wide-only { (time_or(key.last_used_at, "never")) }
                td.wide-only { (status(key.status(now))) @if let Some(at) = key.revoked_at { " " (time(at)) } }
                td.act {
                    @if is_live {
                        a.button href={ (KEYS) "/" (key.id.to_string()) "/rotate" } { "Rotate" span.hidden { " " (key.name) } }
                    }
                    @if key.revoked_at.is_none() {
                        a.button.danger href={ (KEYS) "/" (key.id.to_string()) "/revoke" } { "Revoke" span.hidden { " " (key.name) } }
                    }
                }
            }
        }
    };
    scrolled_table("Operator keys", &head, &rows)
}

fn scopes(scopes: &[OperatorScope]) -> String {
    scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>().join(", ")
}

fn may(key: &OperatorKey) -> Markup {
    let pays = key.rights.scopes.contains(&OperatorScope::Credit);
    html! { (scopes(&key.rights.scopes)) @if pays { " (at most " (usd(key.rights.max_payment)) ")" } }
}

fn networks(key: &OperatorKey) -> String {
    let named = key.rights.networks.iter().flatten().map(ToString::to_string);
    let named: Vec<String> = named.collect();
    if named.is_empty() { "any".to_owned() } else { named.join(", ") }
}

/// Creates a key and shows its plaintext, which is never shown again. A code works once, so a form that is sent twice
/// creates one key.
pub(crate) async fn create(
    State(app): State<App>,
    OperatorAct(ActOf { viewer: operator, form }): OperatorAct,
) -> Result<Response, Failure> {
    let (fault, code) = match made(&app, &operator, &form).await? {
        Ok((name, plaintext)) => return Ok(shown(&operator, "Operator key created", &name, &plaintext)),
        Err(refused) => refused,
    };
    // The code is used up or wrong, so the form asks for another code.
    let again = form.without(&["code"]);
    Ok((code, whole(&app, &operator, Entered::refused(&again, &fault)).await?).into_response())
}

type KeyOrFault = Result<(String, SecretString), (Fault, StatusCode)>;

async fn made(app: &App, operator: &Operator, form: &Fields) -> Result<KeyOrFault, Failure> {
    let settings = match read(form) {
        Ok(settings) => settings,
        Err(fault) => return Ok(Err((fault, StatusCode::UNPROCESSABLE_ENTITY))),
    };
    if let Err(error) = app.management.confirm_operator(&operator.signed_in, form.get("code")).await {
        return Ok(Err(code_fault(error)?));
    }
    let (name, actor) = (settings.name.clone(), operator.signed_in.as_operator());
    match app.management.create_operator_key(settings, actor).await {
        Ok(plaintext) => Ok(Ok((name, plaintext))),
        Err(error) => Ok(Err((fault(error)?, StatusCode::UNPROCESSABLE_ENTITY))),
    }
}

fn shown(operator: &Operator, title: &str, name: &str, plaintext: &SecretString) -> Response {
    let call = format!(
        "curl {}/v1/operator/accounts \\\n  -H 'Authorization: Bearer {}'",
        operator.browser.base(),
        plaintext.expose_secret()
    );
    let content = html! {
        p.lead { "Copy the key of " strong { bdi { (name) } } " now. It is shown only once, since only a hash of it is stored." }
        (new_key(plaintext))
        p { a.button.primary data-done href=(KEYS) { "I have copied it" } }
        h2 { "First use" }
        p { "This lists the accounts, with scope read, accounts or credit. The public address serves the operator API only with "
            code { "FAREGATE_PUBLIC_OPERATOR=all" } "; the key-service’s HTTP port always does." }
        (copyable("Command", &call))
    };
    page(operator, Section::Keys, title, &content)
}

/// Finds the key named by an id in a path.
async fn found(app: &App, id: &str) -> Result<OperatorKey, Failure> {
    let id: OperatorKeyId = id.parse().map_err(|_| Failure::NotFound)?;
    Ok(app.management.find_operator_key(id).await?)
}

pub(crate) async fn ask_rotation(
    State(app): State<App>,
    Path(id): Path<String>,
    operator: Operator,
) -> Result<Response, Failure> {
    let key = found(&app, &id).await?;
    Ok(rotation(&operator, &key, Entered::new(&Fields::default())))
}

fn rotation(operator: &Operator, key: &OperatorKey, entered: Entered<'_>) -> Response {
    let content = html! {
        p.lead { "Rotate " strong { bdi { (key.name) } } " (" code { (key.hint) } ")? A new key with the same name and rights is created and shown once." }
        form.stack.card method="post" {
            (hidden(operator))
            (entered.field("grace", "The previous key works", "", |entry| html! {
                select id=(entry.name) name=(entry.name) aria-describedby=[&entry.described] aria-invalid=[entry.invalid] {
                    @for (seconds, title) in GRACES {
                        option value=(seconds) selected[entry.value == seconds.to_string()] { (title) }
                    }
                }
            }))
            (code_field(entered, "Six digits from your app, or a recovery code."))
            div.buttons { button.primary { "Rotate" } a.button href=(KEYS) { "Cancel" } }
        }
    };
    page(operator, Section::Keys, "Rotate an operator key", &content)
}

pub(crate) async fn rotate(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct(ActOf { viewer: operator, form }): OperatorAct,
) -> Result<Response, Failure> {
    let key = found(&app, &id).await?;
    let offered = GRACES.iter().find(|(seconds, _)| seconds.to_string() == form.get("grace"));
    let Some((seconds, _)) = offered else {
        let fault = Fault::of("grace", "Choose how long the previous key works.");
        let again = rotation(&operator, &key, Entered::refused(&form.without(&["code"]), &fault));
        return Ok((StatusCode::UNPROCESSABLE_ENTITY, again).into_response());
    };
    if let Err(error) = app.management.confirm_operator(&operator.signed_in, form.get("code")).await {
        let (fault, code) = code_fault(error)?;
        let again = rotation(&operator, &key, Entered::refused(&form.without(&["code"]), &fault));
        return Ok((code, again).into_response());
    }
    let (grace, actor) = (Duration::from_secs(*seconds), operator.signed_in.as_operator());
    let plaintext = app.management.rotate_operator_key(key.id, grace, actor).await?;
    Ok(shown(&operator, "Operator key rotated", &key.name, &plaintext))
}

pub(crate) async fn ask_revocation(
    State(app): State<App>,
    Path(id): Path<String>,
    operator: Operator,
) -> Result<Response, Failure> {
    let key = found(&app, &id).await?;
    let content = html! {
        @if let Some(at) = key.revoked_at {
            p.lead { strong { bdi { (key.name) } } " (" code { (key.hint) } ") was revoked " (time(at)) "." }
            p { a.button href=(KEYS) { "Back to the operator keys" } }
        } @else {
            form method="post" {
                p.lead { "Revoke " strong { bdi { (key.name) } } " (" code { (key.hint) } ")?" }
                ul {
                    li { "Its next request is refused on every server." }
                    li { "What it made keeps working." }
                    li { "This cannot be undone." }
                }
                (hidden(&operator))
                div.buttons { button.danger { "Revoke" } a.button href=(KEYS) { "Cancel" } }
            }
        }
    };
    Ok(page(&operator, Section::Keys, "Revoke an operator key", &content))
}

pub(crate) async fn revoke(
    State(app): State<App>,
    Path(id): Path<String>,
    OperatorAct(ActOf { viewer: operator, .. }): OperatorAct,
) -> Result<Response, Failure> {
    let key = found(&app, &id).await?;
    app.management.revoke_operator_key(key.id, operator.signed_in.as_operator()).await?;
    Ok(notice::done(&operator, KEYS, &format!("The operator key {} is revoked.", key.name)))
}
