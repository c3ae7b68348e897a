//! The fields of a key in a form.

use maud::{Markup, html};
use shared::{
    money::{MoneyError, NanoUsd},
    text::is_control,
    time::Timestamp,
    wire::{MAX_LABEL_CHARS, MAX_LIMIT},
};

use super::{
    form::Fields,
    layout::{hinted, problem},
};
use domain::key::ApiKey;

/// The fields, checked.
pub(super) struct KeyForm {
    pub(super) label: String,
    pub(super) limit: Option<NanoUsd>,
    pub(super) expires_at: Option<Timestamp>,
}

impl KeyForm {
    /// Reads the fields, or describes the first fault.
    pub(super) fn read(form: &Fields) -> Result<Self, String> {
        let label = form.get("label").trim();
        if label.chars().count() > MAX_LABEL_CHARS {
            return Err(format!("Label: give at most {MAX_LABEL_CHARS} characters."));
        }
        if label.chars().any(is_control) {
            return Err(
                "Label: control characters, and marks that turn the direction of text, cannot be shown."
                    .into(),
            );
        }
        let limit = form.filled("limit").map(limit).transpose()?;
        let expires_at = match form.filled("expires_at") {
            Some(text) => Some(
                Timestamp::parse(text).ok_or("Expires: give a date and a time, such as 2027-12-31T23:59.")?,
            ),
            None => None,
        };
        Ok(Self { label: label.to_owned(), limit, expires_at })
    }
}

/// An amount, exact where a float would not be.
fn limit(text: &str) -> Result<NanoUsd, String> {
    let bounds = || format!("Limit: give an amount from 0 to {MAX_LIMIT}.");
    match NanoUsd::parse(text.strip_prefix('$').unwrap_or(text)) {
        Ok(limit) if (NanoUsd::ZERO..=MAX_LIMIT).contains(&limit) => Ok(limit),
        Ok(_) | Err(MoneyError::OutOfRange { .. }) => Err(bounds()),
        Err(e @ (MoneyError::NotANumber | MoneyError::RoundsToZero)) => {
            Err(format!("Limit: the amount {e}. Give it as 5 or 0.25."))
        }
    }
}

/// The fields as entered.
pub(super) fn fields(entered: &Fields, wrong: Option<&str>) -> Markup {
    html! {
        (problem(wrong))
        label { "Label" input name="label" maxlength=(MAX_LABEL_CHARS) value=(entered.get("label")) autocomplete="off"; }
        (hinted("limit", "Limit (USD)", "The most it may ever spend. Empty: no limit but the credit.", &html! {
            input #limit name="limit" inputmode="decimal" value=(entered.get("limit")) autocomplete="off"
                aria-describedby="limit-hint";
        }))
        (hinted("expires", "Expires", "In UTC. Empty: never.", &html! {
            input #expires type="datetime-local" name="expires_at" value=(entered.get("expires_at"))
                aria-describedby="expires-hint";
        }))
    }
}

/// The fields of an existing key.
pub(super) fn entered(key: &ApiKey) -> Fields {
    let expires_at = key.spend.expires_at.map(|at| at.to_string());
    Fields::of([
        ("label", key.label.clone()),
        ("limit", key.spend.budget.limit.map_or_else(String::new, |limit| limit.to_string())),
        ("expires_at", expires_at.map_or_else(String::new, |at| at.trim_end_matches('Z').to_owned())),
    ])
}
