//! Pages about webhooks: creating a webhook, its secret, its latest deliveries, testing it, and deleting it.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use shared::{
    secret::SecretString,
    text::sentence,
    time::Timestamp,
    wire::{EVENT_TYPES, MAX_URL_CHARS},
};

use domain::webhook::{
    Attempt, DisabledReason, KEPT_ATTEMPTS, ReceiverAnswer, Webhook, WebhookPatch, WebhookUrl,
};
use key_service_management::{Error, Refused, governed::Governed as _, once::Once};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, refused_form},
    failure::Failure,
    form::Fields,
    layout::{Section, WayBack, confirmation, hidden, page},
    notice,
    object_page::{ObjectAct, ObjectPage},
    session::{Act, OwnerAct, Viewer},
    show::{shown_once, time},
    table::{Row, Table},
};

const PATH: &str = "/dashboard/webhooks";

/// Lists the webhooks, with a form for a new webhook.
pub(super) async fn list(State(app): State<App>, viewer: Viewer) -> Result<Response, Failure> {
    whole(&app, &viewer, Entered::new(&Fields::default())).await
}

async fn whole(app: &App, viewer: &Viewer, entered: Entered<'_>) -> Result<Response, Failure> {
    let webhooks = app.management.webhooks(viewer.signed_in.account).await?;
    let content = html! {
        p.lead { "A webhook receives this account's events as signed requests within seconds, with retries until it accepts them." }
        @if viewer.is_owner() { (form(app, viewer, entered)) }
        (table(&webhooks))
    };
    Ok(page(viewer, Section::Webhooks, "Webhooks", &content))
}

fn form(app: &App, viewer: &Viewer, entered: Entered<'_>) -> Markup {
    let chosen = entered.all("types");
    html! {
        form.card method="post" action=(PATH) {
            (hidden(viewer))
            // An idempotency key: a form that is sent twice creates one webhook.
            input type="hidden" name="attempt" value=(app.management.form_attempt());
            (entered.field("url", "URL", "", |entry| html! {
                input id=(entry.name) name=(entry.name) type="url" required maxlength=(MAX_URL_CHARS) value=(entry.value)
                    autocomplete="off" placeholder="https://example.com/faregate" aria-describedby=[&entry.described]
                    aria-invalid=[entry.invalid] autofocus[entry.has_focus];
            }))
            details open[!chosen.is_empty()] {
                summary { "Only some events" }
                fieldset {
                    legend { "Event types. Select none to receive all." }
                    @for name in EVENT_TYPES {
                        label.choice {
                            input type="checkbox" name="types" value=(name) checked[chosen.contains(&name)];
                            " " (name)
                        }
                    }
                }
            }
            button.primary { "Create webhook" }
        }
    }
}

fn table(webhooks: &[Webhook]) -> Markup {
    let columns = [("URL", "wraps"), ("Events", "wide-only"), ("Created", "wide-only"), ("Status", "wraps")];
    let row = |webhook: &Webhook| {
        let path = format!("{PATH}/{}", webhook.id);
        let url = html! { a href=(path) { bdi { (webhook.url.as_str()) } } };
        Row::new([url, html! { (types(webhook)) }, time(webhook.created_at), html! { (status(webhook)) }])
            .class("gone", matches!(webhook.disabled, Some((_, DisabledReason::Owner))))
    };
    Table::new("Webhooks", columns).or("There are no webhooks yet.").rows(webhooks.iter().rev().map(row))
}

fn types(webhook: &Webhook) -> String {
    webhook.types.as_ref().map_or_else(|| "all".to_owned(), |types| types.join(", "))
}

fn status(webhook: &Webhook) -> Markup {
    html! {
        @match webhook.disabled {
            None => span.badge.active { "enabled" },
            Some((at, DisabledReason::Owner)) => { span.badge.revoked { "disabled" } " by an owner, " (time(at)) },
            Some((at, DisabledReason::Failing)) => { span.badge.short { "disabled" } " no delivery for 24 hours, " (time(at)) },
            Some((at, DisabledReason::AccountClosed)) => { span.badge.revoked { "disabled" } " the account was closed, " (time(at)) },
            Some((at, DisabledReason::Gone)) => { span.badge.short { "disabled" } " answered 410, " (time(at)) },
        }
    }
}

/// Lists the webhooks that were disabled because deliveries failed, each in a sentence.
pub(super) fn failed(webhooks: &[Webhook]) -> Vec<Markup> {
    let failed = webhooks.iter().filter_map(|webhook| match webhook.disabled {
        Some((at, DisabledReason::Failing)) => Some((webhook, at, "no delivery for 24 hours")),
        Some((at, DisabledReason::Gone)) => Some((webhook, at, "it answered 410")),
        Some((_, DisabledReason::Owner | DisabledReason::AccountClosed)) | None => None,
    });
    let sentence = |(webhook, at, reason): (&Webhook, Timestamp, &str)| {
        html! { "The webhook " a href={ (PATH) "/" (webhook.id.to_string()) } { bdi { (webhook.url.as_str()) } }
        " was disabled " (time(at)) ": " (reason) "." }
    };
    failed.map(sentence).collect()
}

/// Creates a webhook and shows its secret, which is never shown again.
pub(super) async fn create(
    State(app): State<App>,
    OwnerAct(Act { viewer, form }): OwnerAct,
) -> Result<Response, Failure> {
    let account = viewer.signed_in.account;
    let chosen = EVENT_TYPES.into_iter().filter(|name| form.all("types").contains(name));
    let types: Vec<String> = chosen.map(str::to_owned).collect();
    let url = match WebhookUrl::parse(form.get("url").trim()) {
        Ok(url) => Some(url),
        Err(bad) => return again(&app, &viewer, &form, &format!("The URL {bad}.")).await,
    };
    let types = Some(Some(types).filter(|types| !types.is_empty()));
    let settings = WebhookPatch { url, types, disabled: None };
    match app.management.create_webhook_once(account, &settings, form.get("attempt")).await {
        Ok(Once::Replayed) => {
            Ok(notice::done(&viewer, PATH, "This form was already submitted and created this webhook."))
        }
        Ok(Once::Stale) => Err(Failure::StaleForm),
        Ok(Once::New((webhook, secret))) => {
            Ok(page(&viewer, Section::Webhooks, "Webhook created", &created(&webhook, &secret)))
        }
        Err(Error::Refused(Refused::Address(refused))) => {
            again(&app, &viewer, &form, &sentence(&refused.to_string())).await
        }
        Err(other) => Err(other.into()),
    }
}

/// Renders the list again, with the fault next to the field for the URL.
async fn again(app: &App, viewer: &Viewer, form: &Fields, wrong: &str) -> Result<Response, Failure> {
    Ok(refused_form(whole(app, viewer, Entered::refused(form, &Fault::of("url", wrong))).await?))
}

fn created(webhook: &Webhook, secret: &SecretString) -> Markup {
    html! {
        p.lead { "Copy the secret of " strong { bdi { (webhook.url.as_str()) } } " now. It is shown only once." }
        (shown_once("Your new secret", secret))
        p { "Use it to verify each request. Any Standard Webhooks library accepts it as it is." }
        p { a.button.primary data-done href={ (PATH) "/" (webhook.id.to_string()) } { "I have copied it" } }
    }
}

/// Shows a webhook with its latest deliveries.
pub(super) async fn show(
    ObjectPage { app, viewer, object: webhook, .. }: ObjectPage<Webhook>,
) -> Result<Response, Failure> {
    let attempts = app.management.attempts(viewer.signed_in.account, webhook.id).await?;
    let content = html! {
        p { (status(&webhook)) " · events: " (types(&webhook)) " · created " (time(webhook.created_at)) }
        @if let Some((_, reason)) = webhook.disabled { p.problem { (why(reason)) } }
        @if viewer.is_owner() { (actions(&viewer, &webhook)) }
        h2 { "Latest deliveries" }
        @if attempts.is_empty() { p.empty { "Nothing has been sent yet." } } @else {
            (deliveries(&attempts))
            p.quiet { "The last " (KEPT_ATTEMPTS) " attempts are kept." }
        }
    };
    Ok(page(&viewer, Section::Webhooks, webhook.url.as_str(), &content))
}

/// Explains why nothing is sent and what enabling the webhook does.
const fn why(reason: DisabledReason) -> &'static str {
    match reason {
        DisabledReason::Owner => {
            "Nothing is sent. Once you enable it again, it receives the events that it missed."
        }
        DisabledReason::Failing => {
            "An event could not be delivered for 24 hours. Once you enable it again, it receives that event and all later ones."
        }
        DisabledReason::AccountClosed => "The account was closed.",
        DisabledReason::Gone => {
            "It answered 410 (Gone). Once you enable it again, it receives that event and all later ones."
        }
    }
}

fn actions(viewer: &Viewer, webhook: &Webhook) -> Markup {
    let path = format!("{PATH}/{}", webhook.id);
    let is_disabled = webhook.disabled.is_some();
    html! {
        div.actions {
            form method="post" action={ (path) "/test" } { (hidden(viewer)) button { "Send a test" } }
            form method="post" action={ (path) "/enabled" } {
                (hidden(viewer))
                button name="enabled" value=(is_disabled) { @if is_disabled { "Enable" } @else { "Disable" } }
            }
            a.button.danger href={ (path) "/delete" } { "Delete" }
        }
    }
}

fn deliveries(attempts: &[Attempt]) -> Markup {
    let columns = [("Time", "slim"), ("Event", "wraps"), ("Answer", "wraps"), ("Duration", "n wide-only")];
    let row = |attempt: &Attempt| {
        let event = html! { (attempt.kind) p.under { code { (attempt.event.to_string()) } } };
        let took = html! { (attempt.milliseconds) " ms" };
        Row::new([time(attempt.at), event, answer(&attempt.answer), took])
    };
    Table::new("Latest deliveries", columns).rows(attempts.iter().map(row))
}

fn answer(answer: &ReceiverAnswer) -> Markup {
    html! {
        @match answer {
            ReceiverAnswer::Status(status @ 200..=299) => span.badge.active { (status) },
            ReceiverAnswer::Status(status) => span.badge.revoked { (status) },
            ReceiverAnswer::None(reason) => span.quiet { (reason) },
        }
    }
}

/// Queues a test event and redirects to the latest deliveries.
pub(super) async fn test(
    ObjectAct { app, viewer, object: webhook, .. }: ObjectAct<Webhook>,
) -> Result<Response, Failure> {
    app.management.test_webhook(viewer.signed_in.account, webhook.id).await?;
    let line = "A test event is on its way. Reload this page to see its delivery.";
    Ok(notice::done(&viewer, &format!("{PATH}/{}", webhook.id), line))
}

pub(super) async fn set_enabled(
    ObjectAct { app, viewer, form, object: webhook, .. }: ObjectAct<Webhook>,
) -> Result<Response, Failure> {
    let reason = (form.get("enabled") != "true").then_some(DisabledReason::Owner);
    let patch = WebhookPatch { disabled: Some(reason), ..WebhookPatch::default() };
    Webhook::update(viewer.by(&app), webhook.id, patch).await?;
    let line = if reason.is_some() { "Webhook disabled." } else { "Webhook enabled." };
    Ok(notice::done(&viewer, &format!("{PATH}/{}", webhook.id), line))
}

/// Explains what deleting does and asks for confirmation.
pub(super) async fn confirm(
    ObjectPage { viewer, object: webhook, .. }: ObjectPage<Webhook>,
) -> Result<Response, Failure> {
    let effects = [
        "Nothing more is sent, not even waiting retries.",
        "Its secret is lost. A new webhook for the same URL gets a new one.",
    ];
    let question = html! { "Delete " strong { bdi { (webhook.url.as_str()) } } "?" };
    let back = format!("{PATH}/{}", webhook.id);
    let content =
        confirmation(&viewer, &question, &effects, "Delete", WayBack { address: &back, name: "webhook" });
    Ok(page(&viewer, Section::Webhooks, "Delete a webhook", &content))
}

pub(super) async fn delete(
    ObjectAct { app, viewer, object: webhook, .. }: ObjectAct<Webhook>,
) -> Result<Response, Failure> {
    Webhook::end(viewer.by(&app), webhook.id).await?;
    Ok(notice::done(&viewer, PATH, "Webhook deleted."))
}
