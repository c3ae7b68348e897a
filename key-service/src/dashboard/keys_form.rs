//! The settings of a key in a form, read from the table of fields.

use maud::{Markup, html};
use shared::{
    money::{MoneyError, NanoUsd},
    text::is_control,
    time::Timestamp,
    wire::{Field, Fields as _, Input, KeyField, Kind, MAX_LIMIT, Value},
};

use super::{
    form::Fields,
    layout::{hinted, problem},
};
use domain::{
    key::{ApiKey, KeyPatch},
    settings::Patch as _,
};

/// Reads the settings, or describes the first fault.
pub(super) fn read(form: &Fields) -> Result<KeyPatch, String> {
    let mut patch = KeyPatch::default();
    for (key_field, field, input) in inputs() {
        // The unit behind the title is no part of the field's name: `Limit (USD)`.
        let name = input.title.split(" (").next().unwrap_or(input.title);
        let value = value(&field, form).map_err(|fault| format!("{name}: {fault}"))?;
        if !patch.set(key_field, value) {
            return Err(format!("{name}: the value cannot be set."));
        }
    }
    Ok(patch)
}

/// The fields of a key that forms have.
fn inputs() -> impl Iterator<Item = (KeyField, Field, Input)> {
    KeyField::settings().filter_map(|field| Some((field, field.row(), field.row().input?)))
}

fn value(field: &Field, form: &Fields) -> Result<Value, String> {
    let Some(text) = form.filled(field.name) else {
        return Ok(if let Kind::Line { .. } = field.kind { Value::Text(String::new()) } else { Value::Null });
    };
    match field.kind {
        Kind::Line { max } => line(text, max).map(Value::Text),
        Kind::Amount => amount(text).map(Value::Amount),
        Kind::Time => {
            let at = Timestamp::parse(text).map(Value::Time);
            at.ok_or_else(|| "give a date and a time, such as 2027-12-31T23:59.".into())
        }
        Kind::Answered(_)
        | Kind::ExternalId { .. }
        | Kind::Count { .. }
        | Kind::Limits
        | Kind::Models
        | Kind::Metadata
        | Kind::Group
        | Kind::Url
        | Kind::EventTypes
        | Kind::Flag
        | Kind::KeyDefaults => Err("the value cannot be set here.".into()),
    }
}

fn line(text: &str, max: usize) -> Result<String, String> {
    if text.chars().count() > max {
        return Err(format!("give at most {max} characters."));
    }
    if text.chars().any(is_control) {
        return Err("control characters, and marks that turn the direction of text, cannot be shown.".into());
    }
    Ok(text.to_owned())
}

/// An amount, exact where a float would not be.
fn amount(text: &str) -> Result<NanoUsd, String> {
    let bounds = || format!("give an amount from 0 to {MAX_LIMIT}.");
    match NanoUsd::parse(text.strip_prefix('$').unwrap_or(text)) {
        Ok(amount) if (NanoUsd::ZERO..=MAX_LIMIT).contains(&amount) => Ok(amount),
        Ok(_) | Err(MoneyError::OutOfRange { .. }) => Err(bounds()),
        Err(e @ (MoneyError::NotANumber | MoneyError::RoundsToZero)) => {
            Err(format!("the amount {e}. Give it as 5 or 0.25."))
        }
    }
}

/// The inputs, with the entered texts.
pub(super) fn fields(entered: &Fields, wrong: Option<&str>) -> Markup {
    html! {
        (problem(wrong))
        @for (_, field, Input { title, hint }) in inputs() {
            @if hint.is_empty() { label { (title) (input(&field, entered)) } }
            @else { (hinted(field.name, title, hint, &input(&field, entered))) }
        }
    }
}

fn input(field: &Field, entered: &Fields) -> Markup {
    let (name, text) = (field.name, entered.get(field.name));
    let hint = format!("{name}-hint");
    html! {
        @match field.kind {
            Kind::Line { max } => input id=(name) name=(name) maxlength=(max) value=(text) autocomplete="off";,
            Kind::Amount => input id=(name) name=(name) inputmode="decimal" value=(text) autocomplete="off" aria-describedby=(hint);,
            Kind::Time => input id=(name) type="datetime-local" name=(name) value=(text) aria-describedby=(hint);,
            Kind::Answered(_) | Kind::ExternalId { .. } | Kind::Count { .. } | Kind::Limits | Kind::Models
                | Kind::Metadata | Kind::Group | Kind::Url | Kind::EventTypes | Kind::Flag | Kind::KeyDefaults => {},
        }
    }
}

/// The settings of an existing key.
pub(super) fn entered(key: &ApiKey) -> Fields {
    Fields::of(inputs().map(|(key_field, field, _)| {
        let value = key.value(key_field, key.created_at);
        let text = value.to_string();
        // Browsers take a time without its zone, and the form says that it is UTC.
        let text = if let Value::Time(_) = value { text.trim_end_matches('Z').to_owned() } else { text };
        (field.name, text)
    }))
}

/// The settings of a key that forms do not have, as far as they are set.
pub(super) fn other_settings(key: &ApiKey, now: Timestamp) -> Markup {
    let other = KeyField::settings().filter(|field| field.row().input.is_none());
    let values = other.map(|field| (field.row(), key.value(field, now).setting()));
    let set: Vec<_> = values.filter(|(_, value)| !value.is_unset()).collect();
    html! {
        @if !set.is_empty() {
            section.card {
                h2 { "Bounds" }
                ul { @for (field, value) in set { li title=(field.description) { (field.name) ": " code { (value) } } } }
            }
        }
    }
}
