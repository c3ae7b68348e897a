//! The limits of a key or a group in a form: amounts, each with its time of renewal.

use maud::{Markup, html};
use shared::{
    calendar::Per,
    money::{MoneyError, NanoUsd},
    wire::{Limit, MAX_LIMIT, Value},
};

use key_service_page::{
    entry::{Entered, Fault},
    form::Fields,
};

/// Names of the fields, and their titles after the first: one for a limit that never resets, and one for each length of
/// window.
const FIELDS: [(&str, &str, &str, &str); 5] = [
    ("limit", "resets", "Limit (USD)", "Resets"),
    ("limit_2", "resets_2", "Limit 2 (USD)", "Resets 2"),
    ("limit_3", "resets_3", "Limit 3 (USD)", "Resets 3"),
    ("limit_4", "resets_4", "Limit 4 (USD)", "Resets 4"),
    ("limit_5", "resets_5", "Limit 5 (USD)", "Resets 5"),
];

/// Limits of a form, each `None` if the form lacks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The limit that never resets.
    pub lifetime: Option<Value>,
    pub windows: Option<Value>,
}

pub fn names() -> impl Iterator<Item = &'static str> {
    FIELDS.into_iter().flat_map(|(name, resets, _, _)| [name, resets])
}

/// Reads the limits of a form, the shortest window first.
pub fn read(form: &Fields) -> Result<Limits, Fault> {
    if !form.has("limit") {
        return Ok(Limits::default());
    }
    let (mut lifetime, mut windows) = (Value::Null, Vec::<Limit>::new());
    for (name, resets, _, _) in FIELDS {
        let Some(text) = form.filled(name) else { continue };
        let amount = amount(text).map_err(|says| Fault::of(name, says))?;
        let twice = || Err(Fault::of(name, "There is a limit with the same reset above. Give one of them."));
        if form.get(resets).is_empty() {
            if lifetime != Value::Null {
                return twice();
            }
            lifetime = Value::Amount(amount);
            continue;
        }
        let per = Per::ALL.into_iter().find(|per| per.as_str() == form.get(resets));
        let per = per.ok_or_else(|| Fault::of(resets, "Choose one of the list."))?;
        if windows.iter().any(|limit| limit.per == per) {
            return twice();
        }
        windows.push(Limit { amount, per, window: None });
    }
    windows.sort_by_key(|limit| limit.per);
    let windows = if windows.is_empty() { Value::Null } else { Value::Limits(windows) };
    Ok(Limits { lifetime: Some(lifetime), windows: form.has("resets").then_some(windows) })
}

/// Reads an amount exactly, which a float could not hold.
fn amount(text: &str) -> Result<NanoUsd, String> {
    let bounds = || format!("Give an amount from 0 to {MAX_LIMIT}.");
    let unreadable = || "Give an amount in US dollars, such as 5, 0.25 or 1,000.00.".to_owned();
    let digits = without_commas(text.strip_prefix('$').unwrap_or(text).trim()).ok_or_else(unreadable)?;
    match NanoUsd::parse(&digits) {
        Ok(amount) if (NanoUsd::ZERO..=MAX_LIMIT).contains(&amount) => Ok(amount),
        Ok(_) | Err(MoneyError::OutOfRange { .. }) => Err(bounds()),
        Err(MoneyError::NotANumber) => Err(unreadable()),
        Err(MoneyError::RoundsToZero) => Err("The amount is below a billionth of a dollar.".into()),
    }
}

/// Returns a number without commas between thousands; `None` if a comma is elsewhere, as in `1,5`.
pub fn without_commas(number: &str) -> Option<String> {
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

/// Returns the texts of a form for these settings: all fields, the first ones filled.
pub fn texts(lifetime: &Value, windows: &Value) -> Vec<(String, String)> {
    let mut limits: Vec<(String, String)> = Vec::new();
    if let Value::Amount(amount) = lifetime {
        limits.push((amount.to_string(), String::new()));
    }
    if let Value::Limits(windows) = windows {
        limits.extend(windows.iter().map(|limit| (limit.amount.to_string(), limit.per.as_str().to_owned())));
    }
    let filled = limits.into_iter().chain(std::iter::repeat_with(Default::default));
    let texts = FIELDS.into_iter().zip(filled);
    texts
        .flat_map(|((name, resets, _, _), (amount, per))| {
            [(name.to_owned(), amount), (resets.to_owned(), per)]
        })
        .collect()
}

/// Field of the button that adds a row: the number of rows from then on.
const ROWS: &str = "rows";

/// Returns the field of the row that a form asks for, if it was sent for a further one.
pub fn added_row(form: &Fields) -> Option<&'static str> {
    let rows: usize = form.filled(ROWS)?.parse().ok()?;
    FIELDS.get(rows.checked_sub(1)?).map(|(name, _, _, _)| *name)
}

/// Makes a row for each limit, at least one, and a button that adds a row.
pub fn rows(entered: Entered<'_>, hint: &str) -> Markup {
    let used = FIELDS.iter().rposition(|(name, resets, _, _)| entered.has_any(&[name, resets]));
    let asked = entered.get(ROWS).parse().unwrap_or_default();
    let rows = used.map_or(1, |last| last + 1).max(asked).min(FIELDS.len());
    html! {
        @for at in 0..rows { (pair(entered, at, if at == 0 { hint } else { "" })) }
        @if rows < FIELDS.len() {
            div { button.link name=(ROWS) value=(rows + 1) formnovalidate { "Add a limit" } }
        }
    }
}

fn pair(entered: Entered<'_>, at: usize, hint: &str) -> Markup {
    let (name, resets, title, resets_title) = FIELDS[at];
    let choice = |value: &'static str, shown: &'static str| {
        html! { option value=(value) selected[entered.get(resets) == value] { (shown) } }
    };
    html! {
        div.pair {
            (entered.field(name, title, hint, |entry| html! {
                span.dollars {
                    input id=(entry.name) name=(entry.name) inputmode="decimal" value=(entry.value) autocomplete="off"
                        aria-describedby=[&entry.described] aria-invalid=[entry.invalid] autofocus[entry.has_focus];
                }
            }))
            (entered.field(resets, resets_title, "", |entry| html! {
                select id=(entry.name) name=(entry.name) aria-invalid=[entry.invalid] aria-describedby=[&entry.described] {
                    (choice("", "never"))
                    (choice("hour", "each hour")) (choice("day", "each day"))
                    (choice("week", "each week")) (choice("month", "each month"))
                }
            }))
        }
    }
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
        let day = Limit { amount: usd(5), per: Per::Day, window: None };
        let read_limits =
            Limits { lifetime: Some(Value::Amount(usd(50))), windows: Some(Value::Limits(vec![day])) };
        assert_eq!(limits, Ok(read_limits.clone()));
        let again = Fields::of(texts(&Value::Amount(usd(50)), &Value::Limits(vec![day])));
        assert_eq!(read(&again), Ok(read_limits));
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
            rows(Entered::new(&form), "The most.").into_string().matches("class=\"pair\"").count()
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
    fn limits_that_a_form_does_not_have_stay() {
        assert_eq!(read(&form(&[("label", "A")])), Ok(Limits::default()));
        let lifetime_alone = Limits { lifetime: Some(Value::Amount(usd(1))), windows: None };
        assert_eq!(read(&form(&[("limit", "1")])), Ok(lifetime_alone));
        let none = Limits { lifetime: Some(Value::Null), windows: Some(Value::Null) };
        assert_eq!(read(&form(&[("limit", ""), ("resets", "")])), Ok(none));
    }
}
