//! Actions on several API keys: their names, what they change, and what they report.

use std::fmt::Write as _;

use shared::time::Timestamp;

use domain::key::KeyPatch;
use key_service_page::{entry::Fault, failure::Failure, form::Fields, show::count};
use key_service_settings::limits::{self, RaiseTerms};

/// The raised amounts to choose from, in percent of a limit's normal amount, each with its name on the page. The first
/// is the default.
pub(super) const RAISES: [(u32, &str); 3] =
    [(200, "twice as much"), (150, "half as much again"), (400, "four times as much")];

/// The limits that can be raised, each with its name on the page. The first is the default.
pub(super) const RESETS: [(&str, &str); 5] = [
    ("month", "that resets each month"),
    ("week", "that resets each week"),
    ("day", "that resets each day"),
    ("hour", "that resets each hour"),
    (limits::NEVER, "that never resets"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Revoke,
    Disable,
    Enable,
    Move,
    Extend,
    Raise,
}

impl Deed {
    pub(super) const ALL: [Self; 6] =
        [Self::Raise, Self::Extend, Self::Move, Self::Disable, Self::Enable, Self::Revoke];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Revoke => "revoke",
            Self::Disable => "disable",
            Self::Enable => "enable",
            Self::Move => "move",
            Self::Extend => "extend",
            Self::Raise => "raise",
        }
    }

    pub(super) const fn button(self) -> &'static str {
        match self {
            Self::Revoke => "Revoke",
            Self::Disable => "Disable",
            Self::Enable => "Enable",
            Self::Move => "Move",
            Self::Extend => "Change expiry",
            Self::Raise => "Raise a limit",
        }
    }

    const fn past(self) -> &'static str {
        match self {
            Self::Revoke => "revoked",
            Self::Disable => "disabled",
            Self::Enable => "enabled",
            Self::Move => "moved",
            Self::Extend => "updated with the new expiry",
            Self::Raise => "raised",
        }
    }

    pub(super) fn parse(form: &Fields) -> Result<Self, Failure> {
        let named = Self::ALL.into_iter().find(|deed| deed.as_str() == form.get("deed"));
        named.ok_or_else(|| {
            Failure::BadRequest(
                "This form did not come from a page of this site. Open the page again and retry.".into(),
            )
        })
    }
}

/// How many keys an action changed, and why it did not change others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) done: usize,
    pub(super) revoked: usize,
    /// Keys that lack the limit to raise.
    pub(super) without_limit: usize,
    /// Keys whose limit is already at the maximum, or was raised further by someone else.
    pub(super) as_high: usize,
    /// Keys that someone deleted or moved out of the member's reach in the meantime.
    pub(super) gone: usize,
}

impl Counts {
    pub(super) fn says(self, deed: Deed) -> String {
        let mut line = match deed {
            Deed::Raise => format!("Limit of {} raised.", numbered(self.done)),
            Deed::Revoke | Deed::Disable | Deed::Enable | Deed::Move | Deed::Extend => {
                format!("{} {}.", numbered(self.done), deed.past())
            }
        };
        for (number, why) in [
            (self.revoked, "Already revoked"),
            (self.without_limit, "Without such a limit"),
            (self.as_high, "Already as high"),
            (self.gone, "No longer within reach"),
        ] {
            if number > 0 {
                let _ = write!(line, " {why}: {}.", count(number as u64));
            }
        }
        line
    }
}

/// What an action does to each key.
pub(super) enum Change {
    Revoke,
    Set(Box<KeyPatch>),
    Raise(RaiseTerms),
}

pub(super) fn change(deed: Deed, form: &Fields) -> Result<Change, Fault> {
    let set = |patch| Ok(Change::Set(Box::new(patch)));
    match deed {
        Deed::Revoke => Ok(Change::Revoke),
        Deed::Disable | Deed::Enable => {
            set(KeyPatch { disabled: Some(deed == Deed::Disable), ..KeyPatch::default() })
        }
        Deed::Move => {
            let group = form.filled("group_id").map(str::parse).transpose();
            let group =
                group.map_err(|_| Fault::of("group_id", "Enter the id of a group, such as grp_…."))?;
            set(KeyPatch { group: Some(group), ..KeyPatch::default() })
        }
        Deed::Extend => {
            let at = form.filled("expires_at").map(|text| instant("expires_at", text)).transpose()?;
            set(KeyPatch { expires_at: Some(at), ..KeyPatch::default() })
        }
        Deed::Raise => {
            let percent = RAISES.iter().find(|(percent, _)| form.get("percent") == percent.to_string());
            let (percent, _) = percent.ok_or_else(|| Fault::of("percent", "Choose one from the list."))?;
            let resets = RESETS.iter().find(|(resets, _)| form.get("resets") == *resets);
            let (resets, _) = resets.ok_or_else(|| Fault::of("resets", "Choose one from the list."))?;
            let until = form
                .filled("until")
                .ok_or_else(|| Fault::of("until", "Enter the time when the raise ends."))?;
            Ok(Change::Raise(RaiseTerms { resets, percent: *percent, until: instant("until", until)? }))
        }
    }
}

fn instant(field: &str, text: &str) -> Result<Timestamp, Fault> {
    let wrong = || Fault::of(field, "Enter a date and time, such as 2027-12-31T23:59.");
    Timestamp::parse(text).ok_or_else(wrong)
}

/// Writes `1 API key` or `2 API keys`.
pub(super) fn numbered(keys: usize) -> String {
    if keys == 1 { "1 API key".into() } else { format!("{} API keys", count(keys as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&'static str, &str)]) -> Fields {
        Fields::of(fields.iter().map(|(name, value)| (*name, (*value).to_owned())))
    }

    #[test]
    fn a_raise_names_its_limit_its_amount_and_its_end() {
        let of = |resets, percent, until| {
            change(Deed::Raise, &form(&[("resets", resets), ("percent", percent), ("until", until)]))
        };
        let Ok(Change::Raise(terms)) = of("month", "150", "2027-12-31T23:59") else {
            panic!("it is refused")
        };
        let until = Timestamp::parse("2027-12-31T23:59").unwrap();
        assert_eq!(terms, RaiseTerms { resets: "month", percent: 150, until });
        for (resets, percent, until, field) in [
            ("year", "150", "2027-12-31T23:59", "resets"),
            ("month", "1000", "2027-12-31T23:59", "percent"),
            ("month", "150", "", "until"),
            ("month", "150", "soon", "until"),
        ] {
            assert!(of(resets, percent, until).is_err_and(|fault| fault.field == field), "{field}");
        }
    }

    #[test]
    fn a_report_counts_the_keys_that_stayed_as_they_were() {
        let counts = Counts { done: 1_200, revoked: 2, ..Counts::default() };
        assert_eq!(counts.says(Deed::Disable), "1,200 API keys disabled. Already revoked: 2.");
        let counts = Counts { done: 1, without_limit: 3, as_high: 2, gone: 1, ..Counts::default() };
        assert_eq!(
            counts.says(Deed::Raise),
            "Limit of 1 API key raised. Without such a limit: 3. Already as high: 2. No longer within reach: 1."
        );
    }
}
