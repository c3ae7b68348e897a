//! Amounts, times and keys as shown on pages.

use maud::{Markup, html};
use shared::{
    money::NanoUsd,
    secret::{ExposeSecret, SecretString},
    time::Timestamp,
};

use domain::key::Status;

/// An exact amount with a sign and at least two decimals: `$1,234.50`, `$0.004215`.
pub(super) fn usd(amount: NanoUsd) -> String {
    let text = amount.to_string();
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("−", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    format!("{sign}${}.{fraction:0<2}", grouped(whole))
}

/// A count with a comma at every thousand.
pub(super) fn count(n: u64) -> String {
    grouped(&n.to_string())
}

fn grouped(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An instant, to the minute, in UTC.
pub(super) fn time(at: Timestamp) -> Markup {
    let exact = at.to_string();
    let shown = exact.get(..16).unwrap_or(&exact).replace('T', " ");
    html! { time datetime=(exact) title=(exact) { (shown) } }
}

/// An instant, to the minute, in UTC; `none` where there is no instant.
pub(super) fn time_or(at: Option<Timestamp>, none: &str) -> Markup {
    html! { @match at { Some(at) => (time(at)), None => span.quiet { (none) } } }
}

/// A label apart from the direction of the text around, or a word for an empty label.
pub(super) fn or_unnamed(label: &str) -> Markup {
    html! { @if label.trim().is_empty() { span.quiet { "no label" } } @else { bdi title=(label) { (label) } } }
}

/// The status of a key.
pub(super) fn status(status: Status) -> Markup {
    html! { span class={ "badge " (status.as_str()) } { (status.as_str()) } }
}

/// A text to be copied, with a button. Without a script, a click selects the text.
pub(super) fn copyable(label: &str, text: &str) -> Markup {
    html! {
        div.copyable {
            pre tabindex="0" aria-label=(label) data-copy { (text) }
            button type="button" data-copies { "Copy" }
        }
    }
}

/// A short text in a line, to be copied.
pub(super) fn copyable_line(label: &str, text: &str) -> Markup {
    html! {
        p.copyable-line { span.quiet { (label) } " " code data-copy { (text) } " " button.link type="button" data-copies { "Copy" } }
    }
}

/// A plaintext that is shown this once.
pub(super) fn new_key(plaintext: &SecretString) -> Markup {
    html! {
        div.copyable.once data-shown-once {
            output aria-label="Your new key" data-copy { (plaintext.expose_secret()) }
            button type="button" data-copies { "Copy" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_shown_exactly() {
        for (nanos, shown) in [
            (0, "$0.00"),
            (1, "$0.000000001"),
            (4_215_000, "$0.004215"),
            (500_000_000, "$0.50"),
            (1_234_567_000_000_000, "$1,234,567.00"),
            (-1_500_000_000, "−$1.50"),
        ] {
            assert_eq!(usd(NanoUsd::from_nanos(nanos)), shown);
        }
        assert_eq!(
            (count(7), count(1_000), count(1_234_567)),
            ("7".into(), "1,000".into(), "1,234,567".into())
        );
    }
}
