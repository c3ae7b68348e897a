//! The settings of a key or group in a form. The form is built from the table of fields.

use std::time::Duration;

use maud::{Markup, html};
use shared::{
    time::Timestamp,
    wire::{Field, Fields as Table, Input, Kind, Value},
};
use shared_catalog::{Model, Rates};

use crate::{
    limits::{self, Limits, RaiseTerms},
    models,
    words::{self, Reader},
};
use domain::{group::Group, settings::Patch};
use key_service_management::{Error, Refused};
use key_service_page::{
    app::App,
    entry::{Entered, Fault, line},
    failure::{Failure, bad_group},
    form::Fields,
    session::Viewer,
    show::{name_of, usd},
};

/// Number of groups that a form offers by name, newest first. If there are more, the group's id must be typed.
const OFFERED_GROUPS: usize = 200;

/// Lifetimes of keys, in days, that the form offers next to the field for the expiry.
const LIVES: [(u64, &str); 3] = [(30, "in 30 days"), (90, "in 90 days"), (365, "in a year")];

/// What a form offers to choose from.
pub struct Offered {
    pub groups: Vec<Group>,
    /// Whether `groups` contains all groups of the account.
    pub has_all_groups: bool,
    /// Ids of models, each with a description of its prices.
    pub models: Vec<(String, String)>,
    /// The current time, from which the offered lifetimes are counted.
    pub now: Timestamp,
}

/// Finds out what the forms for this member offer.
pub async fn offered(app: &App, viewer: &Viewer) -> Result<Offered, Failure> {
    let groups = app.management.newest_groups(viewer.reach(), OFFERED_GROUPS).await?;
    let models = app.catalog.get().models.iter().map(|model| (model.id.clone(), price(model))).collect();
    let has_all_groups = groups.len() < OFFERED_GROUPS;
    Ok(Offered { groups, has_all_groups, models, now: app.management.now() })
}

/// Describes a model's prices: what a million tokens cost.
fn price(model: &Model) -> String {
    let Rates { input, output, .. } = model.price.base;
    format!("{} in, {} out", usd(input), usd(output))
}

/// Form field with the texts that the form showed, as a query. Only settings whose texts differ from these are changed.
/// So if an old page is saved, it does not undo another member's changes.
const SHOWN: &str = "shown";

/// The changes that a form makes to an existing object.
pub struct Edit<P> {
    /// Settings that differ from those that the form showed.
    pub patch: P,
    /// The changed settings that someone else has also changed since the form was shown.
    pub overtaken: Vec<Overtaken>,
}

/// A setting that someone else changed after the form was shown.
pub struct Overtaken {
    field: Field,
    /// The value that the form showed, and the current value.
    values: [Value; 2],
}

/// Reads a new object's settings, or returns the first fault.
pub fn read<P: Patch>(form: &Fields) -> Result<P, Fault> {
    let form = &with_joined_boxes::<P::Field>(form);
    let (mut patch, limits) = (P::default(), limits::read(form)?);
    for (field, row, _) in inputs::<P::Field>(true) {
        if let Some(value) = value(&row, form, &limits).map_err(|says| Fault::of(row.name, says))? {
            set(&mut patch, field, &row, value)?;
        }
    }
    Ok(patch)
}

/// Reads a form's changes to an object that now has the settings `present`, or returns the first fault. Settings
/// without a field in the form stay unchanged.
pub fn read_edit<P: Patch>(form: &Fields, present: &Fields) -> Result<Edit<P>, Fault> {
    let (shown, changed) = changed::<P::Field>(form);
    let (mut edit, limits) = (Edit { patch: P::default(), overtaken: Vec::new() }, limits::read(&changed)?);
    let known = [&shown, present].map(|texts| (texts, limits::read(texts).unwrap_or_default()));
    // A raise ends when its limit is set, so an unchanged raise has to be set again.
    let is_limit_changed = known[0].1.lifetime != limits.lifetime;
    for (field, row, _) in inputs::<P::Field>(false) {
        let wanted = value(&row, &changed, &limits).map_err(|says| Fault::of(row.name, says))?;
        let Some(wanted) = wanted else { continue };
        let values = known.each_ref().map(|(texts, limits)| value(&row, texts, limits).ok().flatten());
        if let [Some(shown), Some(present)] = values {
            let is_raise = matches!((row.kind, &wanted), (Kind::Raise, Value::Raise(_)));
            if shown == wanted && !(is_raise && is_limit_changed) {
                continue;
            }
            if present != shown && present != wanted {
                edit.overtaken.push(Overtaken { field: row, values: [shown, present] });
            }
        }
        set(&mut edit.patch, field, &row, wanted)?;
    }
    Ok(edit)
}

/// Why a limit is not raised.
#[derive(Debug, PartialEq, Eq)]
pub enum Unraised {
    NoLimit,
    /// A raise to at least this amount applies already, or the limit is at the maximum.
    AsHigh,
    Refused(Fault),
}

/// Returns the change that raises a limit of an object with the settings `present`. It changes nothing else.
pub fn raise<P: Patch>(present: &Fields, terms: &RaiseTerms) -> Result<P, Unraised> {
    let RaiseTerms { resets, percent, until } = *terms;
    let (form, field) = limits::raised(present, resets, percent, until, false).ok_or(Unraised::NoLimit)?;
    form.filled(field).ok_or(Unraised::AsHigh)?;
    // Only the limits are sent. Otherwise, the choice of models would look changed, because forms have a field for it
    // that the present settings lack.
    let limits = Fields::of(limits::names().map(|name| (name, form.get(name).to_owned())));
    let edit = read_edit(&limits.with(SHOWN, present.query()), present).map_err(Unraised::Refused)?;
    Ok(edit.patch)
}

/// Returns the texts that the form showed, and those fields of the form that have other texts now. If one field of the
/// limits differs, all fields of the limits are returned.
fn changed<F: Table>(form: &Fields) -> (Fields, Fields) {
    let form = &with_joined_boxes::<F>(form);
    let shown = Fields::of_query(Some(form.get(SHOWN)));
    // Browsers send line breaks as CR LF. This does not count as a change.
    let is_same = |name: &str| shown.has(name) && form.get(name).replace("\r\n", "\n") == shown.get(name);
    let differs = |name: &str| form.has(name) && !is_same(name);
    let has_limits = limits::names().any(differs);
    let of_row =
        inputs::<F>(false).map(|(_, row, _)| row.name).filter(|name| !limits::names().any(|of| of == *name));
    let names = of_row.filter(|name| differs(name));
    let names = names.chain(limits::names().filter(|name| has_limits && form.has(name)));
    let changed = Fields::of(names.map(|name| (name, form.get(name).to_owned())));
    (shown, changed)
}

/// Returns a form in which the choice of models is one text.
fn with_joined_boxes<F: Table>(form: &Fields) -> Fields {
    let lists = inputs::<F>(false).map(|(_, row, _)| row).filter(|row| matches!(row.kind, Kind::Models));
    let joined = lists.filter(|row| form.has(row.name)).map(|row| (row.name, models::text(form, row.name)));
    form.clone().replaced_by(Fields::of(joined))
}

/// Returns the fault for a form if the refusal was caused by one of its settings; `None` for other errors.
pub fn fault(form: &Fields, refused: &Error<Refused>) -> Option<Fault> {
    match refused {
        Error::Refused(Refused::BadGroup(param, bad)) => Some(Fault::of(param, bad_group(*bad))),
        Error::Refused(Refused::BadRaise(bad)) => Some(limits::raise_fault(form, *bad)),
        Error::Refused(_) | Error::Store(_) => None,
    }
}

/// Returns the fields of a form that undoes a change. These are the texts from `before` that differ from those in
/// `after`, and the texts that the form would show now, so that a later change is not lost. `None` if nothing differs.
pub fn undo<F: Table>(before: &Fields, after: &Fields) -> Option<Fields> {
    let differs = |name: &str| before.get(name) != after.get(name);
    let have_limits_changed = limits::names().any(differs);
    let of_rows = inputs::<F>(false).map(|(_, row, _)| row).filter(|row| differs(row.name));
    let mut texts: Vec<(&str, String)> = Vec::new();
    for row in of_rows.filter(|row| !limits::names().any(|of| of == row.name)) {
        texts.push((row.name, before.get(row.name).to_owned()));
        texts.extend(matches!(row.kind, Kind::Models).then(|| models::which(before.get(row.name))));
    }
    texts.extend(
        limits::names().filter(|_| have_limits_changed).map(|name| (name, before.get(name).to_owned())),
    );
    let shown = Fields::of(texts.iter().map(|(name, _)| (*name, after.get(name).to_owned())));
    (!texts.is_empty()).then(|| Fields::of(texts).with(SHOWN, shown.query()))
}

fn set<P: Patch>(patch: &mut P, field: P::Field, row: &Field, value: Value) -> Result<(), Fault> {
    let is_set = patch.set(field, value);
    if is_set { Ok(()) } else { Err(Fault::of(row.name, "The value cannot be set here.")) }
}

/// Returns the form with its changes applied to the current settings, and a fault that asks whether to overwrite
/// someone else's changes. If the form is sent again, it overwrites them. `None` if nothing was overtaken.
pub fn ask<F: Table>(
    form: &Fields,
    present: &Fields,
    overtaken: &[Overtaken],
    reader: Reader<'_>,
) -> Option<(Fields, Fault)> {
    let changes: Vec<String> =
        overtaken.iter().map(|of| words::change(&of.field, &of.values, reader)).collect();
    let first = overtaken.first()?;
    let is_of_limits = matches!(first.field.kind, Kind::Limits | Kind::Raise);
    let name = if is_of_limits { limits::names().next()? } else { first.field.name };
    let says = format!(
        "Somebody else changed this while the page was open. {}. Save again to overwrite it with your values.",
        words::sentence(&changes)
    );
    Some((merged::<F>(form, present).with(SHOWN, present.query()), Fault::of(name, says)))
}

/// Returns the texts of the current settings with a form's changes applied. The limit that is never reset and the other
/// limits are different settings, but use the same fields.
fn merged<F: Table>(form: &Fields, present: &Fields) -> Fields {
    let (shown, changed) = changed::<F>(form);
    let [sent, shown, present_limits] =
        [&changed, &shown, present].map(|texts| limits::read(texts).unwrap_or_default());
    let latest = |sent: Option<Value>, shown, present: Option<Value>| {
        if sent.is_some() && sent != shown { sent } else { present }.unwrap_or(Value::Null)
    };
    let lifetime = latest(sent.lifetime, shown.lifetime, present_limits.lifetime);
    let raised = latest(sent.raised, shown.raised, present_limits.raised);
    let windows = latest(sent.windows, shown.windows, present_limits.windows);
    present.clone().replaced_by(changed).replaced_by(Fields::of(limits::texts(&lifetime, &raised, &windows)))
}

/// Lists the fields for a new or an existing object. Flags are not among them, because they have a switch on the page.
fn inputs<F: Table>(is_new: bool) -> impl Iterator<Item = (F, Field, Input)> {
    let inputs = F::settings().filter_map(|field| Some((field, field.row(), field.row().input?)));
    inputs.filter(move |(_, row, _)| !matches!(row.kind, Kind::Flag) && (is_new || !row.is_fixed))
}

/// Returns a field's value; `None` if the form lacks the field.
fn value(field: &Field, form: &Fields, limits: &Limits) -> Result<Option<Value>, String> {
    if let Kind::Amount = field.kind {
        return Ok(limits.lifetime.clone());
    }
    if let Kind::Raise = field.kind {
        return Ok(limits.raised.clone());
    }
    if let Kind::Limits = field.kind {
        return Ok(limits.windows.clone());
    }
    if !form.has(field.name) {
        return Ok(None);
    }
    if let Kind::Models = field.kind {
        return models::read(form.get(field.name)).map(Some);
    }
    let Some(text) = form.filled(field.name) else {
        return Ok(Some(if let Kind::Line { .. } = field.kind {
            Value::Text(String::new())
        } else {
            Value::Null
        }));
    };
    let value = match field.kind {
        Kind::Line { max } | Kind::ExternalId { max } => line(text, max).map(Value::Text),
        Kind::Time => {
            let at = Timestamp::parse(text).map(Value::Time);
            at.ok_or_else(|| "Enter a date and a time, such as 2027-12-31T23:59.".into())
        }
        Kind::Count { max } => count(text, max).map(Value::Count),
        Kind::Group => {
            text.parse().map(Value::Group).map_err(|_| "Enter the id of a group, such as grp_….".into())
        }
        Kind::Flag
        | Kind::Amount
        | Kind::Raise
        | Kind::Limits
        | Kind::Models
        | Kind::Answered(_)
        | Kind::Metadata
        | Kind::Paid
        | Kind::PaymentId { .. }
        | Kind::Word(_)
        | Kind::Url
        | Kind::EventTypes
        | Kind::KeyDefaults => Err("The value cannot be set here.".into()),
    };
    value.map(Some)
}

fn count(text: &str, max: u64) -> Result<u64, String> {
    let number = limits::without_commas(text).and_then(|digits| digits.parse().ok());
    number
        .filter(|number| (1..=max).contains(number))
        .ok_or_else(|| format!("Enter a whole number from 1 to {max}."))
}

pub fn new_fields<F: Table>(entered: Entered<'_>, offered: &Offered) -> Markup {
    fields::<F>(entered, offered, true)
}

/// Renders the fields for an object with the settings `present`. If the form is refused and shown again, it still has
/// the texts that it showed first.
pub fn edit_fields<F: Table>(entered: Entered<'_>, present: &Fields, offered: &Offered) -> Markup {
    let shown = if entered.get(SHOWN).is_empty() { present.query() } else { entered.get(SHOWN).to_owned() };
    html! {
        input type="hidden" name=(SHOWN) value=(shown);
        (fields::<F>(entered, offered, false))
    }
}

/// Renders the fields. The rates are collapsed if none of them is set.
fn fields<F: Table>(entered: Entered<'_>, offered: &Offered, is_new: bool) -> Markup {
    let is_rate = |row: &Field| matches!(row.kind, Kind::Count { .. });
    let rows = || inputs::<F>(is_new).map(|(_, row, input)| (row, input));
    let rates: Vec<&str> = rows().filter(|(row, _)| is_rate(row)).map(|(row, _)| row.name).collect();
    html! {
        // The Enter key in a field presses the form's first button. This must not be the button that adds a limit.
        button.hidden tabindex="-1" aria-hidden="true" {}
        @for (row, input) in rows().filter(|(row, _)| !is_rate(row)) { (field(&row, is_new, input, entered, offered)) }
        @if !rates.is_empty() {
            details open[entered.has_any(&rates)] {
                summary { "More limits" }
                div.stack {
                    @for (row, input) in rows().filter(|(row, _)| is_rate(row)) { (field(&row, is_new, input, entered, offered)) }
                }
            }
        }
    }
}

fn field(
    row: &Field,
    is_new: bool,
    Input { title, hint }: Input,
    entered: Entered<'_>,
    offered: &Offered,
) -> Markup {
    match row.kind {
        Kind::Line { max } | Kind::ExternalId { max } => entered.line(row.name, title, hint, max),
        Kind::Amount => limits::rows(entered, hint, is_new),
        // Limits and raises appear next to the amount.
        Kind::Limits | Kind::Raise => html! {},
        Kind::Time => entered.instant(row.name, title, hint, &later(offered.now)),
        Kind::Count { .. } => entered.field(row.name, title, hint, |entry| {
            html! {
                input id=(entry.name) name=(entry.name) inputmode="numeric" value=(entry.value) autocomplete="off"
                    aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
            }
        }),
        Kind::Models => models::boxes(row.name, title, hint, entered, &offered.models),
        Kind::Group => group(row.name, title, hint, entered, offered),
        Kind::Flag
        | Kind::Answered(_)
        | Kind::Metadata
        | Kind::Paid
        | Kind::PaymentId { .. }
        | Kind::Word(_)
        | Kind::Url
        | Kind::EventTypes
        | Kind::KeyDefaults => html! {},
    }
}

/// Returns the instants that a click can set as the expiry, in the format of inputs.
pub fn later(now: Timestamp) -> Vec<(String, &'static str)> {
    let minute = Timestamp::from_millis(now.millis() - now.millis().rem_euclid(60_000));
    let at = |days: u64| minute.plus(Duration::from_hours(24 * days));
    LIVES.iter().map(|(days, title)| (limits::instant(at(*days)), *title)).collect()
}

/// Renders a choice of groups by name or, if there are too many groups, an input for a group's id.
pub fn group<'a>(
    name: &'a str,
    title: &str,
    hint: &str,
    entered: Entered<'a>,
    Offered { groups, has_all_groups, .. }: &Offered,
) -> Markup {
    let chosen = entered.get(name);
    let known = groups.iter().find(|group| group.id.to_string() == chosen);
    let live = || groups.iter().filter(|group| group.spend.archived_at.is_none());
    let hint = if *has_all_groups { hint.to_owned() } else { format!("{hint} Enter its id.") };
    entered.field(name, title, &hint, |entry| {
        html! {
            @if *has_all_groups {
                select id=(name) name=(name) aria-describedby=[&entry.described] aria-invalid=[entry.invalid]
                    autofocus[entry.has_focus] {
                    option value="" { "no group" }
                    @if !chosen.is_empty() { option value=(chosen) selected { (known.map_or_else(|| chosen.to_owned(), name_of)) } }
                    @for group in live().filter(|group| group.id.to_string() != chosen) {
                        option value=(group.id.to_string()) { (name_of(group)) }
                    }
                }
            } @else {
                input id=(name) name=(name) value=(chosen) list="groups" autocomplete="off" placeholder="grp_…"
                    aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
                datalist #groups { @for group in live() { option value=(group.id.to_string()) { (name_of(group)) } } }
            }
        }
    })
}

/// Returns an existing object's settings as texts for its form. `value` returns the value of a setting.
pub fn entered<F: Table>(value: impl Fn(F) -> Value) -> Fields {
    let mut texts = Vec::new();
    let (mut lifetime, mut raised, mut windows) = (Value::Null, Value::Null, Value::Null);
    for (field, row, _) in inputs::<F>(false) {
        // A form has fields for limits even if no limit is set.
        match (row.kind, value(field).setting()) {
            (Kind::Amount, amount) => lifetime = amount,
            (Kind::Raise, raise) => raised = raise,
            (Kind::Limits, limits) => windows = limits,
            (_, Value::Time(at)) => texts.push((row.name.to_owned(), limits::instant(at))),
            (_, Value::Texts(models)) => texts.push((row.name.to_owned(), models.join("\n"))),
            (_, other) => texts.push((row.name.to_owned(), other.to_string())),
        }
    }
    texts.extend(limits::texts(&lifetime, &raised, &windows));
    Fields::of(texts)
}

/// Renders those settings that are set but have no field in forms. `value` returns the value of a setting.
pub fn other_settings<F: Table>(value: impl Fn(F) -> Value) -> Markup {
    let other = F::settings().filter(|field| field.row().input.is_none());
    let values = other.map(|field| (field.row(), value(field).setting()));
    let set: Vec<_> = values.filter(|(_, value)| !value.is_unset()).collect();
    html! {
        @if !set.is_empty() {
            details {
                summary { "Settings made with the API" }
                ul {
                    @for (field, value) in set {
                        li title=(field.description) { (field.name) ": "
                            @match value {
                                Value::Metadata(texts) => ul {
                                    @for (name, text) in texts { li { bdi { (name) } ": " bdi { (text.unwrap_or_default()) } } }
                                },
                                Value::Null
                                | Value::Text(_)
                                | Value::Amount(_)
                                | Value::Time(_)
                                | Value::Count(_)
                                | Value::Flag(_)
                                | Value::Limits(_)
                                | Value::Raise(_)
                                | Value::Texts(_)
                                | Value::Group(_)
                                | Value::KeyDefaults(_) => code { (value) },
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
