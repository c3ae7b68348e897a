//! The limits of a key or group in a form. Each limit has an amount and a window, after which it is reset.

use maud::{Markup, html};
use shared::{
    calendar::Per,
    money::{MoneyError, NanoUsd},
    time::Timestamp,
    wire::{Limit, MAX_LIMIT, MAX_RAISE, Raise, Value},
};

use crate::words::dollars;
use domain::ledger::{BadRaise, RaiseFault};
use key_service_page::{
    entry::{Entered, Fault},
    form::Fields,
};

/// Names and titles of the fields of a limit: its amount, its reset, the amount of its raise, and the end of the raise.
/// Except for the first limit, the titles contain the limit's number.
struct LimitFields {
    amount: &'static str,
    resets: &'static str,
    raise: &'static str,
    until: &'static str,
    titles: [&'static str; 4],
}

/// The fields of five limits: one that is never reset, and one for each length of window.
const FIELDS: [LimitFields; 5] = [
    fields(["limit", "resets", "raise", "until"], ["Limit (USD)", "Resets", "Raise to (USD)", "Until"]),
    fields(
        ["limit_2", "resets_2", "raise_2", "until_2"],
        ["Limit 2 (USD)", "Resets 2", "Raise 2 to (USD)", "Until 2"],
    ),
    fields(
        ["limit_3", "resets_3", "raise_3", "until_3"],
        ["Limit 3 (USD)", "Resets 3", "Raise 3 to (USD)", "Until 3"],
    ),
    fields(
        ["limit_4", "resets_4", "raise_4", "until_4"],
        ["Limit 4 (USD)", "Resets 4", "Raise 4 to (USD)", "Until 4"],
    ),
    fields(
        ["limit_5", "resets_5", "raise_5", "until_5"],
        ["Limit 5 (USD)", "Resets 5", "Raise 5 to (USD)", "Until 5"],
    ),
];

const fn fields(names: [&'static str; 4], titles: [&'static str; 4]) -> LimitFields {
    let [amount, resets, raise, until] = names;
    LimitFields { amount, resets, raise, until, titles }
}

impl LimitFields {
    const fn names(&self) -> [&'static str; 4] {
        [self.amount, self.resets, self.raise, self.until]
    }
}

/// Limits read from a form. Each is `None` if the form lacks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The limit that is never reset.
    pub lifetime: Option<Value>,
    /// The raise of the limit that is never reset.
    pub raised: Option<Value>,
    pub windows: Option<Value>,
}

pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().flat_map(LimitFields::names)
}

/// Reads a form's limits. Limits with windows are sorted by the windows' length, the shortest first.
pub fn read(form: &Fields) -> Result<Limits, Fault> {
    if !form.has("limit") {
        return Ok(Limits::default());
    }
    let (mut lifetime, mut raised, mut windows) = (Value::Null, Value::Null, Vec::<Limit>::new());
    for of in &FIELDS {
        let raise = raise(form, of)?;
        let Some(text) = form.filled(of.amount) else {
            let nothing = || Fault::of(of.amount, "Enter the limit to raise.");
            raise.map_or(Ok(()), |_| Err(nothing()))?;
            continue;
        };
        let amount = amount(text).map_err(|says| Fault::of(of.amount, says))?;
        let twice = || Err(Fault::of(of.amount, "A limit above has the same reset. Keep only one of them."));
        if form.get(of.resets).is_empty() {
            if lifetime != Value::Null {
                return twice();
            }
            (lifetime, raised) = (Value::Amount(amount), raise.map_or(Value::Null, Value::Raise));
            continue;
        }
        let per = Per::parse(form.get(of.resets))
            .ok_or_else(|| Fault::of(of.resets, "Choose one from the list."))?;
        if windows.iter().any(|limit| limit.per == per) {
            return twice();
        }
        windows.push(Limit { raised: raise, ..Limit::new(amount, per) });
    }
    windows.sort_by_key(|limit| limit.per);
    let windows = if windows.is_empty() { Value::Null } else { Value::Limits(windows) };
    let raised = form.has("raise").then_some(raised);
    Ok(Limits { lifetime: Some(lifetime), raised, windows: form.has("resets").then_some(windows) })
}

/// Reads the raise of a limit. It has either both an amount and an end, or neither.
fn raise(form: &Fields, of: &LimitFields) -> Result<Option<Raise>, Fault> {
    let raised = match (form.filled(of.raise), form.filled(of.until)) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(Fault::of(of.raise, "Enter the amount to raise the limit to.")),
        (Some(_), None) => return Err(Fault::of(of.until, "Enter the time when the raise ends.")),
        (Some(raised), Some(until)) => (raised, until),
    };
    let amount = amount(raised.0).map_err(|says| Fault::of(of.raise, says))?;
    let until = Timestamp::parse(raised.1);
    let until =
        until.ok_or_else(|| Fault::of(of.until, "Enter a date and a time, such as 2027-12-31T23:59."))?;
    Ok(Some(Raise { amount, until }))
}

/// Returns the fault for a form whose raise was refused.
pub(crate) fn raise_fault(form: &Fields, BadRaise { window, fault }: BadRaise) -> Fault {
    let resets = window.map_or("", |(_, per)| per.as_str());
    let is_raised =
        |of: &&LimitFields| form.filled(of.amount).is_some() && form.get(of.resets).trim() == resets;
    let of = FIELDS.iter().find(is_raised).unwrap_or(&FIELDS[0]);
    match fault {
        RaiseFault::NoLimit => Fault::of(of.amount, "Enter the limit to raise."),
        RaiseFault::NotAbove(plain) => {
            Fault::of(of.raise, format!("Enter more than the limit of {}.", dollars(plain)))
        }
        RaiseFault::Over => Fault::of(of.until, "Enter a time in the future."),
        RaiseFault::TooLong => {
            let days = MAX_RAISE.as_secs() / 86_400;
            Fault::of(of.until, format!("Enter a time within the next {days} days."))
        }
    }
}

/// Returns a form's texts without raises.
pub fn without_raises(form: &Fields) -> Fields {
    form.without(&FIELDS.iter().flat_map(|of| [of.raise, of.until]).collect::<Vec<_>>())
}

/// How to raise a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaiseTerms {
    /// Selects the limit by how often it is reset, or by [`NEVER`] if it is never reset.
    pub resets: &'static str,
    /// The new limit, in percent of the normal limit. A raise that applies now does not change the normal limit.
    pub percent: u32,
    pub until: Timestamp,
}

/// Returns a form's texts in which a limit is raised to twice its amount until the end of the day, and the name of the
/// field with the new amount. `None` if there is no such limit.
pub fn raised_today(form: &Fields, resets: &str, now: Timestamp) -> Option<(Fields, &'static str)> {
    raised(form, resets, 200, Per::Day.end(now), true)
}

/// Returns a form's texts in which a limit is raised to `percent`, and the name of the field with the new amount.
/// `None` if there is no such limit. If `from_raise` is true, `percent` is relative to the raise in the form.
/// Otherwise, it is relative to the normal limit, so raising twice has the same effect as raising once. The amount is
/// empty if it would not be above the limit, or would be below the raise.
pub(crate) fn raised(
    form: &Fields,
    resets: &str,
    percent: u32,
    until: Timestamp,
    from_raise: bool,
) -> Option<(Fields, &'static str)> {
    let resets = match resets {
        "" => return None,
        NEVER => "",
        length => length,
    };
    let of = FIELDS.iter().find(|of| form.filled(of.amount).is_some() && form.get(of.resets) == resets)?;
    let limit = form.filled(of.amount).and_then(|text| amount(text).ok())?;
    let raise = form.filled(of.raise).and_then(|text| amount(text).ok());
    let base = raise.filter(|_| from_raise).unwrap_or(limit);
    let more = base.nanos().saturating_mul(percent.into()) / 100;
    let more = NanoUsd::from_nanos(more).min(MAX_LIMIT);
    let is_more = more > base && raise.is_none_or(|raise| more >= raise);
    let filled = form.clone().with(of.until, instant(until));
    let amount = if is_more { more.to_string() } else { String::new() };
    Some((filled.with(of.raise, amount), of.raise))
}

/// Lists the ends of the current windows, which a form offers as the end of a raise, in the format of inputs.
pub fn ends(now: Timestamp) -> Vec<(String, &'static str)> {
    let ends =
        [(Per::Day, "end of the day in UTC"), (Per::Week, "of the week"), (Per::Month, "of the month")];
    ends.iter().map(|(per, title)| (instant(per.end(now)), *title)).collect()
}

/// In the address of a form that raises a limit, stands for the limit that is never reset.
pub const NEVER: &str = "never";

/// Writes an instant as inputs in browsers do: without a zone, and without the seconds if they are zero.
pub fn instant(at: Timestamp) -> String {
    let text = at.to_string();
    let text = text.trim_end_matches('Z');
    text.strip_suffix(":00").filter(|text| text.len() == "2027-12-31T23:59".len()).unwrap_or(text).to_owned()
}

/// Parses an amount exactly, without a float.
fn amount(text: &str) -> Result<NanoUsd, String> {
    let bounds = || format!("Enter an amount from 0 to {MAX_LIMIT}.");
    let unreadable = || "Enter an amount in US dollars, such as 5, 0.25 or 1,000.00.".to_owned();
    let digits = without_commas(text.strip_prefix('$').unwrap_or(text).trim()).ok_or_else(unreadable)?;
    match NanoUsd::parse(&digits) {
        Ok(amount) if (NanoUsd::ZERO..=MAX_LIMIT).contains(&amount) => Ok(amount),
        Ok(_) | Err(MoneyError::OutOfRange { .. }) => Err(bounds()),
        Err(MoneyError::NotANumber) => Err(unreadable()),
        Err(MoneyError::RoundsToZero) => Err("The amount is below a billionth of a dollar.".into()),
    }
}

/// Removes the commas between thousands; `None` if a comma is at another place, as in `1,5`.
pub(crate) fn without_commas(number: &str) -> Option<String> {
    let (whole, fraction) =
        number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
    if fraction.is_some_and(|fraction| fraction.contains(',')) {
        return None;
    }
    let mut parts = whole.split(',');
    let first = parts.next().unwrap_or_default();
    let is_grouped = parts.clone().next().is_none() || (1..=3).contains(&first.len());
    let are_thousands = parts.all(|part| part.len() == 3 && part.bytes().all(|digit| digit.is_ascii_digit()));
    (is_grouped && are_thousands).then(|| number.replace(',', ""))
}

/// Returns the texts of a form with these settings. The limits are in the first fields, and the other fields are empty.
pub fn texts(lifetime: &Value, raised: &Value, windows: &Value) -> Vec<(String, String)> {
    let raise = |raised: Option<Raise>| {
        raised.map_or_else(Default::default, |raise| [raise.amount.to_string(), instant(raise.until)])
    };
    let mut limits: Vec<[String; 4]> = Vec::new();
    if let Value::Amount(amount) = lifetime {
        let raised = if let Value::Raise(raise) = raised { Some(*raise) } else { None };
        let [raise, until] = raise(raised);
        limits.push([amount.to_string(), String::new(), raise, until]);
    }
    if let Value::Limits(windows) = windows {
        limits.extend(windows.iter().map(|limit| {
            let [raise, until] = raise(limit.raised);
            [limit.amount.to_string(), limit.per.as_str().to_owned(), raise, until]
        }));
    }
    let filled = limits.into_iter().chain(std::iter::repeat_with(Default::default));
    let texts = FIELDS.iter().zip(filled);
    texts.flat_map(|(of, texts)| of.names().into_iter().map(str::to_owned).zip(texts)).collect()
}

/// Name of the button that adds a row. Its value is the new number of rows.
const ROWS: &str = "rows";

/// If the form was sent to add a row, returns the name of the new row's field.
pub fn added_row(form: &Fields) -> Option<&'static str> {
    let rows: usize = form.filled(ROWS)?.parse().ok()?;
    FIELDS.get(rows.checked_sub(1)?).map(|of| of.amount)
}

/// Renders a row for each limit, but at least one row, and a button that adds a row. For a new object, there are no
/// fields for raises.
pub fn rows(entered: Entered<'_>, hint: &str, is_new: bool) -> Markup {
    let used = FIELDS.iter().rposition(|of| entered.has_any(&of.names()));
    let asked = entered.get(ROWS).parse().unwrap_or_default();
    let rows = used.map_or(1, |last| last + 1).max(asked).min(FIELDS.len());
    html! {
        @for (at, of) in FIELDS.iter().enumerate().take(rows) {
            (pair(entered, of, if at == 0 { hint } else { "" }))
            @if !is_new { (raise_fields(entered, of)) }
        }
        @if rows < FIELDS.len() {
            div { button.link name=(ROWS) value=(rows + 1) formnovalidate { "Add a limit" } }
        }
    }
}

fn pair(entered: Entered<'_>, of: &'static LimitFields, hint: &str) -> Markup {
    let [title, resets_title, _, _] = of.titles;
    let choice = |value: &'static str, shown: &'static str| {
        html! { option value=(value) selected[entered.get(of.resets) == value] { (shown) } }
    };
    html! {
        div.pair {
            (dollar_field(entered, of.amount, title, hint))
            (entered.field(of.resets, resets_title, "", |entry| html! {
                select id=(entry.name) name=(entry.name) aria-invalid=[entry.invalid] aria-describedby=[&entry.described] {
                    (choice("", "never"))
                    (choice("hour", "each hour")) (choice("day", "each day"))
                    (choice("week", "each week")) (choice("month", "each month"))
                }
            }))
        }
    }
}

/// Renders the fields of a raise. They are collapsed if there is no raise.
fn raise_fields(entered: Entered<'_>, of: &'static LimitFields) -> Markup {
    let [_, _, title, until_title] = of.titles;
    html! {
        details open[entered.has_any(&[of.raise, of.until])] {
            summary { "Raise until a time" }
            div.pair {
                (dollar_field(entered, of.raise, title, "Applies until the time next to it. Then the normal limit applies again."))
                (entered.instant(of.until, until_title, "", &[]))
            }
        }
    }
}

fn dollar_field(entered: Entered<'_>, name: &'static str, title: &str, hint: &str) -> Markup {
    entered.field(name, title, hint, |entry| html! {
        span.dollars {
            input id=(entry.name) name=(entry.name) inputmode="decimal" value=(entry.value) autocomplete="off"
                aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&'static str, &str)]) -> Fields {
        Fields::of(fields.iter().map(|(name, value)| (*name, (*value).to_owned())))
    }

    fn usd(dollars: i64) -> NanoUsd {
        NanoUsd::from_usd(dollars)
    }

    #[test]
    fn amounts_are_read_as_our_own_pages_write_them() {
        for (text, nanos) in [
            ("5", 5_000_000_000),
            ("$1,000.00", 1_000_000_000_000),
            ("$ 0.25", 250_000_000),
            ("1,000,000", 1_000_000_000_000_000),
            ("1000000", 1_000_000_000_000_000),
        ] {
            assert_eq!(amount(text), Ok(NanoUsd::from_nanos(nanos)), "{text}");
        }
        for text in [
            "1,5", "1,50", "10,00", "1,,000", "1000,000", ",100", "1.000,00", "1.5,000", "-1", "a dollar",
            "1e300", "$",
        ] {
            assert!(amount(text).is_err(), "{text}");
        }
    }

    #[test]
    fn each_limit_has_a_reset_of_its_own() {
        let limits = read(&form(&[
            ("limit", "50"),
            ("resets", ""),
            ("limit_2", "5"),
            ("resets_2", "day"),
            ("limit_3", ""),
            ("resets_3", "day"),
        ]));
        let day = Limit::new(usd(5), Per::Day);
        let (lifetime, windows) = (Value::Amount(usd(50)), Value::Limits(vec![day]));
        let read_limits =
            Limits { lifetime: Some(lifetime.clone()), raised: None, windows: Some(windows.clone()) };
        assert_eq!(limits, Ok(read_limits.clone()));
        let again = Fields::of(texts(&lifetime, &Value::Null, &windows));
        assert_eq!(read(&again), Ok(Limits { raised: Some(Value::Null), ..read_limits }));
        for twice in [
            [("limit", "1"), ("resets", ""), ("limit_2", "2"), ("resets_2", "")],
            [("limit", "1"), ("resets", "week"), ("limit_2", "2"), ("resets_2", "week")],
        ] {
            assert_eq!(read(&form(&twice)).unwrap_err().field, "limit_2");
        }
        assert_eq!(read(&form(&[("limit", "1"), ("resets", "year")])).unwrap_err().field, "resets");
    }

    #[test]
    fn a_form_has_a_row_for_each_limit_and_one_more_when_asked() {
        let rows = |fields: &[(&'static str, &str)]| {
            let form = form(fields);
            let rows = rows(Entered::new(&form), "The most.", true);
            rows.into_string().matches("class=\"pair\"").count()
        };
        assert_eq!(rows(&[]), 1);
        assert_eq!(rows(&[("limit", "1"), ("limit_3", "2")]), 3);
        assert_eq!(rows(&[("limit", "1"), ("rows", "2")]), 2);
        assert_eq!(rows(&[("rows", "99")]), FIELDS.len());
        assert_eq!(added_row(&form(&[("rows", "2")])), Some("limit_2"));
        for none in ["", "0", "6", "x"] {
            assert_eq!(added_row(&form(&[("rows", none)])), None, "{none}");
        }
    }

    #[test]
    fn a_limit_is_raised_to_twice_its_amount_until_the_end_of_the_day() {
        let noon = Timestamp::parse("2027-12-30T12:00Z").unwrap();
        let filled = form(&[("limit", "50"), ("resets", ""), ("limit_2", "0.5"), ("resets_2", "day")]);
        let raised = |form: &Fields, resets| {
            let (form, field) = raised_today(form, resets, noon)?;
            let until = form.get(&field.replace("raise", "until")).to_owned();
            Some((field, form.get(field).to_owned(), until))
        };
        let midnight = || "2027-12-31T00:00".to_owned();
        assert_eq!(raised(&filled, "never"), Some(("raise", "100".into(), midnight())));
        assert_eq!(raised(&filled, "day"), Some(("raise_2", "1".into(), midnight())));
        let again = filled.clone().with("raise_2", "4".into());
        assert_eq!(raised(&again, "day"), Some(("raise_2", "8".into(), midnight())));
        assert_eq!((raised(&filled, "week"), raised(&filled, "")), (None, None));
        let most = filled.with("limit", "1000000".into());
        assert_eq!(raised(&most, "never"), Some(("raise", String::new(), midnight())), "it is the most");
        let nothing = form(&[("limit", "0"), ("resets", "hour")]);
        assert_eq!(raised(&nothing, "hour"), Some(("raise", String::new(), midnight())));
    }

    #[test]
    fn a_raise_that_counts_from_the_normal_limit_does_not_compound() {
        let until = Timestamp::parse("2027-12-30T12:00Z").unwrap();
        let limited = form(&[("limit", "10"), ("resets", "day")]);
        let with_raise = |amount: &str| limited.clone().with("raise", amount.into());
        let amount = |form: &Fields| {
            let (form, field) = raised(form, "day", 150, until, false).unwrap();
            form.get(field).to_owned()
        };
        assert_eq!(amount(&limited), "15");
        assert_eq!(amount(&with_raise("12")), "15");
        assert_eq!(amount(&with_raise("15")), "15", "the same raise again keeps its amount");
        assert_eq!(amount(&with_raise("20")), "", "a higher raise stays");
    }

    #[test]
    fn limits_that_a_form_does_not_have_stay() {
        assert_eq!(read(&form(&[("label", "A")])), Ok(Limits::default()));
        let lifetime_alone = Limits { lifetime: Some(Value::Amount(usd(1))), ..Limits::default() };
        assert_eq!(read(&form(&[("limit", "1")])), Ok(lifetime_alone));
        let none = Limits { lifetime: Some(Value::Null), raised: None, windows: Some(Value::Null) };
        assert_eq!(read(&form(&[("limit", ""), ("resets", "")])), Ok(none));
    }
}
