//! Renders form fields with what was entered in them. In a refused form, the fault is next to its field.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use maud::{Markup, html};
use shared::text::is_control;

use crate::{
    form::{ASKED_TIME, Fields},
    layouts::layout::hinted,
    site::zone::Zone,
};

/// What is wrong with a form: only the first fault that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name of the field next to which the fault is shown.
    pub field: String,
    /// What is wrong and how to fix it.
    pub says: String,
}

impl Fault {
    pub fn of(field: &str, says: impl Into<String>) -> Self {
        Self { field: field.to_owned(), says: says.into() }
    }
}

/// Answers 422 with a page that shows the refused form again.
pub fn refused_form(page: Response) -> Response {
    (StatusCode::UNPROCESSABLE_ENTITY, page).into_response()
}

/// The values of a form's fields, and the fault if the form was refused.
#[derive(Clone, Copy, Debug)]
pub struct Entered<'a> {
    fields: &'a Fields,
    fault: Option<&'a Fault>,
    focus: Option<&'a str>,
    /// Time zone of the reader; UTC if there is none.
    zone: Option<&'a Zone>,
}

/// The attributes of an input.
pub struct Entry<'a> {
    /// Both the `name` and the `id`.
    pub name: &'a str,
    pub value: &'a str,
    /// `aria-describedby`: the ids of the hint and the fault.
    pub described: Option<String>,
    /// `aria-invalid`, if the input has the fault.
    pub invalid: Option<&'static str>,
    /// `autofocus`: the input has the fault, or the page exists for the form and this is its first field.
    pub has_focus: bool,
}

impl<'a> Entered<'a> {
    /// Returns a form that has not been sent yet.
    pub const fn new(fields: &'a Fields) -> Self {
        Self { fields, fault: None, focus: None, zone: None }
    }

    /// Returns a form that was refused because of this fault.
    pub fn refused(fields: &'a Fields, fault: &'a Fault) -> Self {
        Self { fields, fault: Some(fault), focus: Some(&fault.field), zone: None }
    }

    /// Moves the focus to this field.
    #[must_use]
    pub const fn focused(self, name: &'a str) -> Self {
        Self { focus: Some(name), ..self }
    }

    /// Shows times in this zone, and asks for times in it. The form's fields contain the times in UTC.
    #[must_use]
    pub const fn in_zone(self, zone: &'a Zone) -> Self {
        Self { zone: Some(zone), ..self }
    }

    /// Returns the value of a field; empty if there is none.
    pub fn get(self, name: &str) -> &'a str {
        self.fields.get(name)
    }

    /// Returns all values of a field that repeats.
    pub fn all(self, name: &str) -> Vec<&'a str> {
        self.fields.all(name)
    }

    /// Returns whether any of these fields has a value or the fault.
    pub fn has_any(self, names: &[&str]) -> bool {
        names.iter().any(|name| {
            self.fields.filled(name).is_some() || self.fault.is_some_and(|fault| fault.field == *name)
        })
    }

    /// Renders a field: title, input, fault, and a hint unless it is empty.
    pub fn field(
        self,
        name: &'a str,
        title: &str,
        hint: &str,
        input: impl FnOnce(&Entry<'a>) -> Markup,
    ) -> Markup {
        let entry = self.entry(name, hint);
        hinted(name, title, hint, &html! { (input(&entry)) (self.fault_of(name)) })
    }

    /// Renders a group of check boxes: title, boxes, fault and hint.
    pub fn boxes(
        self,
        name: &'a str,
        title: &str,
        hint: &str,
        boxes: impl FnOnce(&Entry<'a>) -> Markup,
    ) -> Markup {
        let entry = self.entry(name, hint);
        html! {
            fieldset.field aria-describedby=[&entry.described] {
                legend { (title) }
                (boxes(&entry))
                (self.fault_of(name))
                small id={ (name) "-hint" } { (hint) }
            }
        }
    }

    fn entry(self, name: &'a str, hint: &str) -> Entry<'a> {
        let fault = self.fault.filter(|fault| fault.field == name);
        let ids = [(!hint.is_empty()).then_some("hint"), fault.map(|_| "fault")];
        let ids: Vec<String> = ids.into_iter().flatten().map(|part| format!("{name}-{part}")).collect();
        Entry {
            name,
            value: self.get(name),
            described: (!ids.is_empty()).then(|| ids.join(" ")),
            invalid: fault.map(|_| "true"),
            has_focus: self.focus == Some(name),
        }
    }

    fn fault_of(self, name: &str) -> Markup {
        let fault = self.fault.filter(|fault| fault.field == name);
        html! { @if let Some(fault) = fault { p.fault id={ (name) "-fault" } role="alert" { (fault.says) } } }
    }

    /// Renders a field for a line of text.
    pub fn line(self, name: &'a str, title: &str, hint: &str, max: usize) -> Markup {
        self.field(name, title, hint, |entry| {
            html! {
                input id=(entry.name) name=(entry.name) maxlength=(max) value=(entry.value) autocomplete="off"
                    aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
            }
        })
    }

    /// Renders a field for a time in the reader's zone, with buttons that fill in a later time. `later` has times in
    /// UTC.
    pub fn instant(self, name: &'a str, title: &str, hint: &str, later: &[(String, &str)]) -> Markup {
        let local = |utc: &str| self.zone.map_or_else(|| utc.to_owned(), |zone| zone.from_utc(utc));
        let hint = match self.zone.filter(|zone| !zone.is_utc()) {
            Some(zone) => format!("{} time. {hint}", zone.title()),
            None => format!("In UTC. {hint}"),
        };
        self.field(name, title, hint.trim_end(), |entry| {
            html! {
                div.with-buttons {
                    input id=(entry.name) type="datetime-local" name=(entry.name) value=(local(entry.value))
                        step=[step(entry.value)] aria-describedby=[&entry.described] aria-invalid=[entry.invalid]
                        autofocus[entry.has_focus];
                    @if self.zone.is_some() { input type="hidden" name=(ASKED_TIME) value={ (name) " " (entry.value) }; }
                    @for (at, title) in later {
                        button.link.needs-script type="button" data-fills=(name) value=(local(at)) { (title) }
                    }
                }
            }
        })
    }
}

/// Returns the `step` with which an input accepts this time. Browsers accept only whole minutes by default.
fn step(instant: &str) -> Option<&'static str> {
    let clock = instant.split('T').nth(1)?;
    match (clock.contains('.'), clock.len() > "23:59".len()) {
        (true, _) => Some("0.001"),
        (false, true) => Some("1"),
        (false, false) => None,
    }
}

/// Reads a line of at most `max` characters.
pub fn line(text: &str, max: usize) -> Result<String, String> {
    if text.chars().count() > max {
        return Err(format!("Enter at most {max} characters."));
    }
    if text.chars().any(is_control) {
        return Err("Control characters and text-direction marks are not allowed.".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_stands_at_its_field_and_the_field_has_the_focus() {
        let fields = Fields::of([("label", "A".to_owned()), ("limit", "much".to_owned())]);
        let fault = Fault::of("limit", "Give a number.");
        let entered = Entered::refused(&fields, &fault);
        let label = entered.line("label", "Label", "", 80).into_string();
        let limit = entered.line("limit", "Limit", "The most.", 80).into_string();
        assert!(!label.contains("aria-invalid") && !label.contains("autofocus"), "{label}");
        assert!(!label.contains("aria-describedby"), "{label}");
        assert!(limit.contains("aria-invalid=\"true\"") && limit.contains(" autofocus"), "{limit}");
        assert!(limit.contains("aria-describedby=\"limit-hint limit-fault\""), "{limit}");
        assert!(limit.contains("id=\"limit-fault\" role=\"alert\">Give a number."), "{limit}");
        assert!(limit.contains("value=\"much\""), "what was entered stays: {limit}");
    }

    #[test]
    fn a_browser_takes_an_instant_with_seconds_as_it_is() {
        assert_eq!(step(""), None);
        assert_eq!(step("2027-12-31T23:59"), None);
        assert_eq!(step("2027-12-31T23:59:59"), Some("1"));
        assert_eq!(step("2027-12-31T23:59:59.250"), Some("0.001"));
    }
}
