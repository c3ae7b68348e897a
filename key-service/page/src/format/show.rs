//! Writes amounts, times and keys as they appear on pages.

use maud::{Markup, html};
use shared::{
    money::NanoUsd,
    secret::{ExposeSecret, SecretString},
    text::grouped,
    time::Timestamp,
};

pub use shared::money::usd;

use domain::{group::Group, key::Status};

/// Number of decimals that amounts in a column have.
const COLUMN_DECIMALS: usize = 6;

/// Renders an amount with two decimals, rounded down. The tooltip shows the exact amount.
pub fn glance(amount: NanoUsd) -> Markup {
    shortened(amount, 2, "< $0.01")
}

/// Renders an amount for a column in which the decimal points line up. The tooltip shows the exact amount.
pub fn aligned(amount: NanoUsd) -> Markup {
    shortened(amount, COLUMN_DECIMALS, "< $0.000001")
}

/// Renders an amount with at most `decimals` decimals (and at most six), rounded down. The tooltip shows the exact
/// amount.
pub fn to_decimals(amount: NanoUsd, decimals: usize) -> Markup {
    let decimals = decimals.min(COLUMN_DECIMALS);
    shortened(amount, decimals, if decimals <= 2 { "< $0.01" } else { "< $0.0001" })
}

/// Renders an amount with its decimals cut to `decimals`, or the text `less` if this would look like zero.
fn shortened(amount: NanoUsd, decimals: usize, less: &str) -> Markup {
    let exact = usd(amount);
    let (whole, fraction) = exact.split_once('.').unwrap_or((&exact, ""));
    let cut: String = fraction.chars().chain("000000".chars()).take(decimals).collect();
    let is_cut_to_zero = amount > NanoUsd::ZERO && whole == "$0" && cut.bytes().all(|digit| digit == b'0');
    let shown = if is_cut_to_zero { less.to_owned() } else { format!("{whole}.{cut}") };
    html! { span.usd title=(exact) { (shown) } }
}

/// Writes a count. If it has more than five digits, only three are written, as in `3.14M`.
pub fn short_count(n: u64) -> String {
    let units = [(1_000_000_000_000, "T"), (1_000_000_000, "B"), (1_000_000, "M")];
    let Some((unit, name)) = units.into_iter().find(|(unit, _)| n >= *unit) else { return count(n) };
    let (whole, hundredths) = (n / unit, n % unit / (unit / 100));
    match whole {
        0..10 => format!("{whole}.{hundredths:02}{name}"),
        10..100 => format!("{whole}.{}{name}", hundredths / 10),
        _ => format!("{}{name}", count(whole)),
    }
}

pub fn requests(n: u64) -> String {
    format!("{} {}", count(n), if n == 1 { "request" } else { "requests" })
}

/// Writes a duration, rounded to about three digits.
pub fn duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..10_000 => format!("{}.{:02} s", millis / 1_000, millis % 1_000 / 10),
        10_000..100_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} s", count(millis / 1_000)),
    }
}

/// Writes a count with thousands separators.
pub fn count(n: u64) -> String {
    grouped(&n.to_string())
}

/// Renders a time in UTC, to the minute. The script replaces it with the reader's local time, or with "3 minutes ago".
pub fn time(at: Timestamp) -> Markup {
    let exact = at.to_string();
    html! { time datetime=(exact) title=(utc(&exact, 19)) { (utc(&exact, 16)) } }
}

/// Renders a time in UTC, to the second. The script replaces it with the reader's local time.
pub fn time_to_second(at: Timestamp) -> Markup {
    let exact = at.to_string();
    html! { time datetime=(exact) title=(utc(&exact, 19)) data-seconds { (utc(&exact, 19)) } }
}

/// Writes the first `length` characters of an RFC 3339 time as `2026-11-20 09:00 UTC`.
fn utc(exact: &str, length: usize) -> String {
    format!("{} UTC", exact.get(..length).unwrap_or(exact).replace('T', " "))
}

/// Renders a time like [`time`], or the text `none` if there is no time.
pub fn time_or(at: Option<Timestamp>, none: &str) -> Markup {
    html! { @match at { Some(at) => (time(at)), None => span.quiet { (none) } } }
}

/// Renders a label, or "no label" if it is empty. The text direction around the label does not affect it.
pub fn or_unnamed(label: &str) -> Markup {
    html! { @if label.trim().is_empty() { span.quiet { "no label" } } @else { bdi title=(label) { (label) } } }
}

/// Returns the name of a group, or its id if it has none.
pub fn name_of(group: &Group) -> String {
    if group.name.trim().is_empty() { group.id.to_string() } else { group.name.clone() }
}

pub fn status(status: Status) -> Markup {
    html! { span class={ "badge " (status.as_str()) } { (status.as_str()) } }
}

/// Returns the name of the running program, for commands that readers paste.
pub fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_stem().map_or_else(|| "faregate".into(), |name| name.to_string_lossy().into_owned())
}

/// Renders a text with a copy button. Without the script, a click selects the text.
pub fn copyable(label: &str, text: &str) -> Markup {
    html! {
        div.copyable {
            pre tabindex="0" aria-label=(label) data-copy { (text) }
            button type="button" data-copies { "Copy" }
        }
    }
}

/// Renders a short text on one line, with a copy button.
pub fn copyable_line(label: &str, text: &str) -> Markup {
    html! {
        p.copyable-line { span.quiet { (label) } " " code data-copy { (text) } " " button.link type="button" data-copies { "Copy" } }
    }
}

/// Renders the plaintext of a new key. No other page shows it again.
pub fn new_key(plaintext: &SecretString) -> Markup {
    shown_once("Your new key", plaintext)
}

/// Renders a secret with a copy button. No other page shows the secret again.
pub fn shown_once(label: &str, plaintext: &SecretString) -> Markup {
    html! {
        div.copyable.once data-shown-once {
            output aria-label=(label) data-copy { (plaintext.expose_secret()) }
            button type="button" data-copies { "Copy" }
        }
    }
}

/// Renders a table that scrolls within the page. `head` contains the cells of the first row.
pub fn scrolled_table(name: &str, head: &Markup, rows: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label=(name) { (table(head, rows)) } }
}

/// Like [`scrolled_table`], but for tables of figures: the names of rows are not bold.
pub fn scrolled_figures(name: &str, head: &Markup, rows: &Markup) -> Markup {
    html! { div.scroll.free tabindex="0" role="region" aria-label=(name) { (table(head, rows)) } }
}

fn table(head: &Markup, rows: &Markup) -> Markup {
    html! { table { thead { tr { (head) } } tbody { (rows) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shortened_and_their_tooltips_are_exact() {
        for (nanos, at_a_glance, in_a_column) in [
            (0, "$0.00", "$0.000000"),
            (1, "&lt; $0.01", "&lt; $0.000001"),
            (9_999_999, "&lt; $0.01", "$0.009999"),
            (1_785_223_841_010, "$1,785.22", "$1,785.223841"),
            (19_999_999_999, "$19.99", "$19.999999"),
            (-1_500_000_000, "−$1.50", "−$1.500000"),
        ] {
            let amount = NanoUsd::from_nanos(nanos);
            assert!(glance(amount).into_string().ends_with(&format!(">{at_a_glance}</span>")), "{nanos}");
            assert!(aligned(amount).into_string().ends_with(&format!(">{in_a_column}</span>")), "{nanos}");
            assert!(aligned(amount).into_string().contains(&format!("title=\"{}\"", usd(amount))), "{nanos}");
        }
        for (millis, shown) in
            [(0, "0 ms"), (999, "999 ms"), (2_910, "2.91 s"), (61_990, "61.9 s"), (1_800_000, "1,800 s")]
        {
            assert_eq!(duration(millis), shown);
        }
        for (n, shown) in [
            (999_999, "999,999"),
            (3_141_592, "3.14M"),
            (45_670_000, "45.6M"),
            (1_234_000_000_000_000, "1,234T"),
        ] {
            assert_eq!(short_count(n), shown);
        }
        assert_eq!(
            (count(7), count(1_000), count(1_234_567)),
            ("7".into(), "1,000".into(), "1,234,567".into())
        );
    }
}
