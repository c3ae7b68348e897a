//! Learns, from the usage that an upstream reports, how many tokens its template adds to a prompt beyond the prompt's
//! upper bound.
//!
//! A single report may be odd, so only the excess that all of the last three reports show counts. Reports are forgotten
//! after a while, since the template may change.

use std::time::Duration;

/// Number of reports that must show an excess.
const REPORTS: usize = 3;
/// Age at which a report is forgotten.
const REMEMBERED: Duration = Duration::from_hours(1);
/// Largest number of added tokens that is believed: more than any known template adds.
const MOST_EXCESS: u64 = 8_192;

/// The last reports of plain prompts. All times count from one common instant.
#[derive(Clone, Copy, Debug, Default)]
pub struct TemplateReports([Option<TemplateReport>; REPORTS]);

#[derive(Clone, Copy, Debug)]
struct TemplateReport {
    excess: u64,
    at: Duration,
}

impl TemplateReports {
    /// Adds the report of a prompt without images or tools.
    #[must_use]
    pub fn after(self, reported: u64, bound: u64, at: Duration) -> Self {
        let [_, second, third] = self.0;
        let excess = reported.saturating_sub(bound).min(MOST_EXCESS);
        Self([second, third, Some(TemplateReport { excess, at })])
    }

    /// Returns the tokens by which any prompt may exceed its bound.
    pub fn excess(&self, now: Duration) -> u64 {
        let recent = |report: &TemplateReport| now.saturating_sub(report.at) < REMEMBERED;
        let excess =
            |report: &Option<TemplateReport>| report.filter(recent).map_or(0, |report| report.excess);
        self.0.iter().map(excess).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: u64 = 100;

    fn after(reported: &[u64]) -> TemplateReports {
        reported.iter().fold(TemplateReports::default(), |reports, reported| {
            reports.after(*reported, BOUND, Duration::ZERO)
        })
    }

    #[test]
    fn the_least_excess_of_the_last_three_reports_is_learned() {
        for (reported, learned) in [
            (&[][..], 0),
            (&[900], 0),
            (&[900, 900], 0),
            (&[900, 700, 800], 600),
            (&[900, 700, 800, 850, 801], 700),
            (&[700, 700, 99], 0),
            (&[700, 99, 700, 700], 0),
            (&[u64::MAX, 160, u64::MAX], 60),
            (&[u64::MAX; 3], MOST_EXCESS),
        ] {
            assert_eq!(after(reported).excess(Duration::ZERO), learned, "{reported:?}");
        }
    }

    #[test]
    fn the_lesson_is_forgotten_within_an_hour() {
        let second = Duration::from_secs(1);
        let reports = after(&[500; 3]).after(500, BOUND, second).after(500, BOUND, second);
        assert_eq!(reports.excess(second), 400);
        assert_eq!(reports.excess(REMEMBERED), 0, "one of the three is too old");
        assert_eq!(reports.after(500, BOUND, REMEMBERED).excess(REMEMBERED), 400);
    }
}
