//! Pages about alerts: creating an alert, its latest messages, testing it, and deleting it.

use axum::{
    extract::{RawQuery, State},
    response::Response,
};
use maud::{Markup, html};
use shared::{
    ids::{GroupId, KeyId},
    secret::SecretString,
    text::sentence,
    wire::{
        MAX_ALERT_ADDRESS_CHARS, MAX_ALERT_INTERVAL_HOURS, MAX_ALERT_THRESHOLD, MAX_ID_CHARS, MAX_LABEL_CHARS,
    },
};

use domain::{
    alert::{Alert, AlertFault, AlertPatch, AlertSubject, Channel, Rule},
    webhook::{Attempt, KEPT_ATTEMPTS, ReceiverAnswer},
};
use key_service_management::{Error, Refused, governed::Governed as _, once::Once};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, line, refused_form},
    failure::Failure,
    form::Fields,
    layout::{Section, WayBack, confirmation, hidden, page},
    notice,
    object_page::{ObjectAct, ObjectPage},
    session::{Act, OwnerAct, Viewer},
    show::time,
    table::{Row, Table},
};

const PATH: &str = "/dashboard/alerts";
/// Shown as the name of an alert without a label.
const UNNAMED: &str = "Unnamed alert";

/// Lists the alerts, with a form for a new alert. A link to this page can fill in what the new alert is about.
pub(super) async fn list(
    State(app): State<App>,
    viewer: Viewer,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    whole(&app, &viewer, Entered::new(&Fields::of_query(query.as_deref()))).await
}

async fn whole(app: &App, viewer: &Viewer, entered: Entered<'_>) -> Result<Response, Failure> {
    let alerts = app.management.alerts(viewer.signed_in.account).await?;
    let content = html! {
        p.lead { "An alert warns people by mail or chat, at most once per key, group or account in its interval." }
        @if viewer.is_owner() { (form(app, viewer, entered)) }
        (table(&alerts))
    };
    Ok(page(viewer, Section::Alerts, "Alerts", &content))
}

fn form(app: &App, viewer: &Viewer, entered: Entered<'_>) -> Markup {
    let rules = Rule::ALL.map(|rule| (rule.as_str(), title(rule)));
    let channels = Channel::ALL.map(|channel| (channel.as_str(), name(channel)));
    html! {
        form.card method="post" action=(PATH) {
            (hidden(viewer))
            // An idempotency key: a form that is sent twice creates one alert.
            input type="hidden" name="attempt" value=(app.management.form_attempt());
            (entered.line("label", "Name", "Begins each message.", MAX_LABEL_CHARS))
            (choice(entered, "rule", "When", "", &rules))
            (number(entered, "threshold", "Threshold", "Times (5), percent (50, 80 or 95; usually 80) or days (7). Leave empty for the usual number."))
            (entered.line("about", "Only about", "Id of a key or a group. Leave empty for the whole account.", MAX_ID_CHARS))
            (choice(entered, "channel", "Send to", "", &channels))
            (entered.line("to", "Address", "An email address, or the URL of the incoming webhook in Slack or Teams. The URL is not shown again. Leave empty for the account's webhooks.", MAX_ALERT_ADDRESS_CHARS))
            (number(entered, "interval_hours", "Interval in hours", "There is at most one message about the same key, group or account in this time. Leave empty for 24. A weekly report has none."))
            button.primary { "Create alert" }
        }
    }
}

fn choice(
    entered: Entered<'_>,
    field: &'static str,
    title: &str,
    hint: &str,
    options: &[(&str, &str)],
) -> Markup {
    entered.field(field, title, hint, |entry| {
        html! {
            select id=(entry.name) name=(entry.name) aria-describedby=[&entry.described] aria-invalid=[entry.invalid]
                autofocus[entry.has_focus] {
                @for (value, shown) in options {
                    option value=(value) selected[*value == entry.value] { (shown) }
                }
            }
        }
    })
}

fn number(entered: Entered<'_>, field: &'static str, title: &str, hint: &str) -> Markup {
    entered.field(field, title, hint, |entry| {
        html! {
            input id=(entry.name) name=(entry.name) inputmode="numeric" value=(entry.value) autocomplete="off"
                aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
        }
    })
}

/// Returns the name that pages show for a rule.
const fn title(rule: Rule) -> &'static str {
    match rule {
        Rule::SpendJump => "A key spends many times its usual amount",
        Rule::LimitShare => "A key or group has used much of a limit",
        Rule::Refused => "Requests are refused: a limit or the credit is used up",
        Rule::CreditDays => "The credit lasts for only a few days",
        Rule::WeeklyReport => "Every Monday: last week's spend by team",
    }
}

const fn name(channel: Channel) -> &'static str {
    match channel {
        Channel::Webhook => "The account's webhooks",
        Channel::Email => "Email",
        Channel::Slack => "Slack",
        Channel::Teams => "Microsoft Teams",
    }
}

/// Describes what an alert reports, with its threshold.
fn rule(alert: &Alert) -> String {
    let threshold = alert.threshold().unwrap_or_default();
    match alert.rule {
        Rule::SpendJump => format!("A key spends {threshold} times its usual amount"),
        Rule::LimitShare => format!("{threshold} % of a limit is used"),
        Rule::CreditDays => format!("The credit lasts for less than {threshold} days"),
        Rule::Refused | Rule::WeeklyReport => title(alert.rule).to_owned(),
    }
}

fn about(alert: &Alert) -> Markup {
    let key = |id: KeyId| html! { a href={ "/dashboard/keys/" (id.to_string()) } { "one key" } };
    let group = |id: GroupId| html! { a href={ "/dashboard/groups/" (id.to_string()) } { "one group" } };
    match alert.about {
        Some(AlertSubject::Key(id)) => key(id),
        Some(AlertSubject::Group(id)) => group(id),
        Some(AlertSubject::Account(_)) | None => html! { "the account" },
    }
}

/// Describes how often an alert reports the same subject.
fn interval(alert: &Alert) -> String {
    match alert.rule {
        Rule::WeeklyReport => "One message each Monday.".to_owned(),
        Rule::SpendJump | Rule::LimitShare | Rule::Refused | Rule::CreditDays => {
            format!("At most one message about the same subject in {} hours.", alert.interval_hours())
        }
    }
}

fn label(alert: &Alert) -> &str {
    if alert.label.is_empty() { UNNAMED } else { &alert.label }
}

fn destination(alert: &Alert) -> Markup {
    html! { (name(alert.channel)) @if !alert.address.shown.is_empty() { " " bdi { (alert.address.shown) } } }
}

fn table(alerts: &[Alert]) -> Markup {
    let columns = [
        ("Name", "wraps"),
        ("When", "wraps"),
        ("About", "wide-only"),
        ("Sent to", "wraps"),
        ("Status", "slim"),
    ];
    let row = |alert: &Alert| {
        let link = html! { a href={ (PATH) "/" (alert.id.to_string()) } { bdi { (label(alert)) } } };
        Row::new([link, html! { (rule(alert)) }, about(alert), destination(alert), status(alert)])
            .class("gone", !alert.enabled)
    };
    Table::new("Alerts", columns).or("There are no alerts yet.").rows(alerts.iter().rev().map(row))
}

fn status(alert: &Alert) -> Markup {
    html! {
        @if alert.enabled { span.badge.active { "enabled" } } @else { span.badge.revoked { "disabled" } }
    }
}

pub(super) async fn create(
    State(app): State<App>,
    OwnerAct(Act { viewer, form }): OwnerAct,
) -> Result<Response, Failure> {
    let account = viewer.signed_in.account;
    let settings = match settings(&form) {
        Ok(settings) => settings,
        Err(fault) => return again(&app, &viewer, &form, &fault).await,
    };
    match app.management.create_alert_once(account, settings, form.get("attempt")).await {
        Ok(Once::Replayed) => {
            Ok(notice::done(&viewer, PATH, "This form was already submitted and created this alert."))
        }
        Ok(Once::Stale) => Err(Failure::StaleForm),
        Ok(Once::New(alert)) => {
            let page = format!("{PATH}/{}", alert.id);
            Ok(notice::done(&viewer, &page, "Alert created. Send a test to see whether it arrives."))
        }
        Err(Error::Refused(Refused::BadAlert(fault))) => {
            let fault = Fault::of(fault.param(), says(fault));
            again(&app, &viewer, &form, &fault).await
        }
        Err(other) => Err(other.into()),
    }
}

fn says(fault: AlertFault) -> String {
    sentence(&format!("this {fault}").replace('`', ""))
}

/// Reads the form. What is not checked here is checked when the alert is created.
fn settings(form: &Fields) -> Result<AlertPatch, Fault> {
    let number = |field: &str, max: u64| match form.get(field).trim() {
        "" => Ok(None),
        text => match text.parse() {
            Ok(number) if (1..=max).contains(&number) => Ok(Some(number)),
            Ok(_) | Err(_) => Err(Fault::of(field, format!("Enter a whole number from 1 to {max}."))),
        },
    };
    let label = line(form.get("label").trim(), MAX_LABEL_CHARS).map_err(|says| Fault::of("label", says))?;
    let rule = Rule::parse(form.get("rule")).ok_or_else(|| Fault::of("rule", "Choose one."))?;
    let channel = Channel::parse(form.get("channel")).ok_or_else(|| Fault::of("channel", "Choose one."))?;
    let about = Some(form.get("about").trim().to_owned()).filter(|about| !about.is_empty());
    let threshold = number("threshold", MAX_ALERT_THRESHOLD)?;
    let interval_hours = number("interval_hours", MAX_ALERT_INTERVAL_HOURS)?;
    Ok(AlertPatch {
        label: Some(label),
        rule: Some(rule),
        threshold: Some(threshold),
        about: Some(about),
        channel: Some(channel),
        to: Some(SecretString::from(form.get("to").trim())),
        interval_hours: Some(interval_hours),
        enabled: None,
    })
}

/// Renders the list again with the fault at its field.
async fn again(app: &App, viewer: &Viewer, form: &Fields, fault: &Fault) -> Result<Response, Failure> {
    Ok(refused_form(whole(app, viewer, Entered::refused(form, fault)).await?))
}

/// Shows an alert with its latest messages.
pub(super) async fn show(
    ObjectPage { app, viewer, object: alert, .. }: ObjectPage<Alert>,
) -> Result<Response, Failure> {
    let messages = app.management.messages(viewer.signed_in.account, alert.id).await?;
    let content = html! {
        p { (status(&alert)) " · " (rule(&alert)) " · about " (about(&alert)) " · created " (time(alert.created_at)) }
        p { "Sent to: " (destination(&alert)) ". " (interval(&alert)) }
        @if viewer.is_owner() { (actions(&viewer, &alert)) }
        h2 { "Latest messages" }
        @if alert.channel == Channel::Webhook {
            p.empty { "Messages are events of the type alert.raised. Each webhook lists its deliveries." }
        } @else if messages.is_empty() { p.empty { "Nothing has been sent yet." } } @else {
            (latest(&messages))
            p.quiet { "The last " (KEPT_ATTEMPTS) " attempts are kept." }
        }
    };
    Ok(page(&viewer, Section::Alerts, label(&alert), &content))
}

fn actions(viewer: &Viewer, alert: &Alert) -> Markup {
    let path = format!("{PATH}/{}", alert.id);
    html! {
        div.actions {
            form method="post" action={ (path) "/test" } { (hidden(viewer)) button { "Send a test" } }
            form method="post" action={ (path) "/enabled" } {
                (hidden(viewer))
                button name="enabled" value=(!alert.enabled) { @if alert.enabled { "Disable" } @else { "Enable" } }
            }
            a.button.danger href={ (path) "/delete" } { "Delete" }
        }
    }
}

fn latest(messages: &[Attempt]) -> Markup {
    let columns = [("Time", "slim"), ("Message", "wraps"), ("Answer", "wraps"), ("Duration", "n wide-only")];
    let row = |attempt: &Attempt| {
        let answer = html! {
            @match &attempt.answer {
                ReceiverAnswer::Status(status @ 200..=299) => span.badge.active { (status) },
                ReceiverAnswer::Status(status) => span.badge.revoked { (status) },
                ReceiverAnswer::None(reason) => span.quiet { (reason) },
            }
        };
        let kind = attempt.kind.replace('_', " ");
        Row::new([time(attempt.at), html! { (kind) }, answer, html! { (attempt.milliseconds) " ms" }])
    };
    Table::new("Latest messages", columns).rows(messages.iter().map(row))
}

/// Queues a test message and redirects to the latest messages.
pub(super) async fn test(
    ObjectAct { app, viewer, object: alert, .. }: ObjectAct<Alert>,
) -> Result<Response, Failure> {
    let line = match app.management.test_alert(viewer.signed_in.account, alert.id).await {
        Ok(_) => "A test is on its way. Reload this page to see what became of it.",
        Err(Error::Refused(Refused::TestedLately)) => {
            "Nothing was sent, because the account tested an alert within the last minute. Try again in a minute."
        }
        Err(error) => return Err(error.into()),
    };
    Ok(notice::done(&viewer, &format!("{PATH}/{}", alert.id), line))
}

pub(super) async fn set_enabled(
    ObjectAct { app, viewer, form, object: alert, .. }: ObjectAct<Alert>,
) -> Result<Response, Failure> {
    let enabled = form.get("enabled") == "true";
    let patch = AlertPatch { enabled: Some(enabled), ..AlertPatch::default() };
    Alert::update(viewer.by(&app), alert.id, patch).await?;
    let line = if enabled { "Alert enabled." } else { "Alert disabled." };
    Ok(notice::done(&viewer, &format!("{PATH}/{}", alert.id), line))
}

/// Explains what deleting does and asks for confirmation.
pub(super) async fn confirm(
    ObjectPage { viewer, object: alert, .. }: ObjectPage<Alert>,
) -> Result<Response, Failure> {
    let effects = ["Nothing more is sent, not even waiting messages.", "Its address is forgotten."];
    let question = html! { "Delete " strong { bdi { (label(&alert)) } } "?" };
    let back = format!("{PATH}/{}", alert.id);
    let content =
        confirmation(&viewer, &question, &effects, "Delete", WayBack { address: &back, name: "alert" });
    Ok(page(&viewer, Section::Alerts, "Delete an alert", &content))
}

pub(super) async fn delete(
    ObjectAct { app, viewer, object: alert, .. }: ObjectAct<Alert>,
) -> Result<Response, Failure> {
    Alert::end(viewer.by(&app), alert.id).await?;
    Ok(notice::done(&viewer, PATH, "Alert deleted."))
}
