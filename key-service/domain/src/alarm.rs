//! Alarms on an account's first page in the dashboard. A member can mute them.

use std::{collections::BTreeMap, fmt};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// Keys that cannot spend because a limit is reached.
    OutOfBudget,
    /// Inactive keys with which programs still make calls.
    StillCalled,
    /// Webhooks that were disabled because deliveries failed.
    WebhookOff,
    /// Keys that have used four fifths of a limit.
    NearLimit,
    /// Keys that expire within a week.
    ExpiresSoon,
    /// Requests that were refused today.
    Refused,
}

shared::names! {
    Alarm: OutOfBudget = "out_of_budget", StillCalled = "still_called", WebhookOff = "webhook_off",
    NearLimit = "near_limit", ExpiresSoon = "expires_soon", Refused = "refused",
}

/// The alarms that apply, each with its number of keys, webhooks or requests, which is never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlarmCounts(BTreeMap<Alarm, u64>);

impl AlarmCounts {
    pub fn new(counts: impl IntoIterator<Item = (Alarm, u64)>) -> Self {
        Self(counts.into_iter().filter(|(_, count)| *count > 0).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lists the alarms and their counts, most urgent first.
    pub fn iter(&self) -> impl Iterator<Item = (Alarm, u64)> {
        self.0.iter().map(|(alarm, count)| (*alarm, *count))
    }

    pub fn has(&self, alarm: Alarm) -> bool {
        self.0.contains_key(&alarm)
    }

    /// Returns these alarms together with `others`. For an alarm that is in both, `others` gives the count.
    #[must_use]
    pub fn with(mut self, others: &Self) -> Self {
        self.0.extend(others.iter());
        self
    }

    /// Returns the alarms that `muted` does not hide. A muted alarm reappears when its count rises, except for refused
    /// requests, whose count rises all day.
    #[must_use]
    pub fn without(&self, muted: &Self) -> Self {
        let is_hidden = |alarm: Alarm, count: u64| {
            muted.0.get(&alarm).is_some_and(|then| count <= *then || alarm == Alarm::Refused)
        };
        Self::new(self.iter().filter(|(alarm, count)| !is_hidden(*alarm, *count)))
    }

    /// Parses the text that `Display` writes; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let read = |part: &str| {
            let (name, count) = part.split_once(':')?;
            let alarm = Alarm::ALL.into_iter().find(|alarm| alarm.as_str() == name)?;
            Some((alarm, count.parse().ok()?))
        };
        text.split(',')
            .filter(|part| !part.is_empty())
            .map(read)
            .collect::<Option<BTreeMap<_, _>>>()
            .map(Self::new)
    }
}

impl fmt::Display for AlarmCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (alarm, count)) in self.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(f, "{comma}{}:{count}", alarm.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_muted_alarm_shows_again_when_it_is_about_more() {
        let muted = AlarmCounts::new([(Alarm::OutOfBudget, 45), (Alarm::Refused, 3)]);
        let now = |limited, refused| {
            let counts = [(Alarm::OutOfBudget, limited), (Alarm::Refused, refused), (Alarm::WebhookOff, 1)];
            AlarmCounts::new(counts).without(&muted).to_string()
        };
        assert_eq!(now(45, 3), "webhook_off:1");
        assert_eq!(now(12, 90), "webhook_off:1");
        assert_eq!(now(46, 0), "out_of_budget:46,webhook_off:1");
        assert!(AlarmCounts::new([(Alarm::NearLimit, 0)]).is_empty());
    }

    #[test]
    fn counts_are_read_as_they_are_written() {
        let counts = AlarmCounts::new(Alarm::ALL.into_iter().zip(1..));
        assert_eq!(AlarmCounts::parse(&counts.to_string()), Some(counts));
        assert_eq!(AlarmCounts::parse(""), Some(AlarmCounts::default()));
        for wrong in ["x", "out_of_budget", "out_of_budget:x", "other:1", "out_of_budget:-1"] {
            assert_eq!(AlarmCounts::parse(wrong), None, "{wrong}");
        }
    }
}
