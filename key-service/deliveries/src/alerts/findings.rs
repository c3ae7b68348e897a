//! What alerts find in an account, in words.

use shared::{
    ids::{AccountId, GroupId, KeyId},
    money::{NanoUsd, usd},
    time::Timestamp,
};
use tokio::sync::OnceCell;

use crate::alerts::message::{AlertMessage, MAX_LINES};
use domain::{
    alert::{Alert, AlertSubject, MAX_REPORTED, Rule, StoredAlert, monday},
    event::{Event, MoneyBound, Threshold},
    usage::{Day, Sums},
};
use key_service_management::{
    Error, Management, Refused,
    jumps::SpendJump,
    local_days::LocalDays,
    reach::AccountReach,
    spend::{ChartStep, SpendBy, SpendPart, SpendSearch},
    top::Depth,
};
use key_service_store::store::StoreError;

/// A reason to send a message.
#[derive(Clone, Debug)]
pub(crate) enum AlertFinding {
    Event(Event),
    Jump(SpendJump, Option<GroupId>),
    /// The remaining credit, and the number of whole days that it will last.
    Credit(NanoUsd, i64),
    Week(Week),
}

/// The spend of a week.
#[derive(Clone, Debug)]
pub(crate) struct Week {
    first: Day,
    last: Day,
    sum: NanoUsd,
    /// Spend by group, largest first.
    parts: Vec<(SpendPart, NanoUsd)>,
}

/// Finds what is to be reported about an account.
pub(crate) struct Findings<'a> {
    management: &'a Management,
    pub(crate) account: AccountId,
    /// The account's spend jumps. They are looked for when an alert first asks for them.
    jumps: OnceCell<Vec<SpendJump>>,
}

impl AlertFinding {
    /// Returns the group that the finding's key belongs to.
    pub(crate) fn group(&self) -> Option<GroupId> {
        match self {
            Self::Event(event) => event.group,
            Self::Jump(_, group) => *group,
            Self::Credit(..) | Self::Week(_) => None,
        }
    }
}

impl<'a> Findings<'a> {
    pub(crate) const fn new(management: &'a Management, account: AccountId) -> Self {
        Self { management, account, jumps: OnceCell::const_new() }
    }

    /// Finds what an alert reports about the account's sums.
    pub(crate) async fn of_sums(
        &self,
        alert: &Alert,
        now: Timestamp,
    ) -> Result<Vec<(AlertSubject, AlertFinding)>, StoreError> {
        let threshold = alert.threshold().unwrap_or_default();
        match alert.rule {
            Rule::SpendJump => self.jumps(alert, threshold).await,
            Rule::CreditDays => {
                let Some(funds) = self.management.funds(self.account).await? else { return Ok(Vec::new()) };
                let days = self.management.spend_rate(self.account).await?.days_left(funds.credit);
                let days = days.filter(|days| *days < i64::try_from(threshold).unwrap_or(i64::MAX));
                let found = days.map(|days| AlertFinding::Credit(funds.credit, days.max(0)));
                Ok(found.map(|found| (AlertSubject::Account(self.account), found)).into_iter().collect())
            }
            Rule::WeeklyReport => {
                Ok(vec![(AlertSubject::Account(self.account), AlertFinding::Week(self.week(now).await?))])
            }
            Rule::LimitShare | Rule::Refused => Ok(Vec::new()),
        }
    }

    /// Finds the jumps of at least `threshold` times the usual amount. A key that hardly spent anything before has no
    /// usual amount, so its jump counts whatever the threshold is.
    async fn jumps(
        &self,
        alert: &Alert,
        threshold: u64,
    ) -> Result<Vec<(AlertSubject, AlertFinding)>, StoreError> {
        let mut found = Vec::new();
        let all = self.jumps.get_or_try_init(|| self.management.spend_jumps(self.account)).await?;
        for jump in all.iter().copied() {
            if jump.jump.times.is_some_and(|times| times < threshold) {
                continue;
            }
            let group = self.group_of(jump.key).await?;
            let is_about = alert.about.is_none_or(|about| {
                about == AlertSubject::Key(jump.key)
                    || group.is_some_and(|group| about == AlertSubject::Group(group))
            });
            if is_about {
                found.push((AlertSubject::Key(jump.key), AlertFinding::Jump(jump, group)));
            }
        }
        Ok(found)
    }

    /// Sums the last whole week by top-level group.
    async fn week(&self, now: Timestamp) -> Result<Week, StoreError> {
        let last = Day::of(monday(now)).plus(-1);
        let first = last.plus(-6);
        let (range, by) = (LocalDays::utc(first..=last), SpendBy::TopGroup);
        let search = SpendSearch { range, by, step: ChartStep::Day, depth: Depth::PAGE };
        let parts = self.management.spend_parts(self.account, search).await?;
        let sum_of = |sums: Sums, more: &Sums| sums.plus(*more);
        let mut parts: Vec<(SpendPart, NanoUsd)> = parts
            .into_iter()
            .map(|(part, times)| (part, times.values().fold(Sums::default(), sum_of).charged))
            .filter(|(_, charged)| *charged > NanoUsd::ZERO)
            .collect();
        parts.sort_by_key(|(_, charged)| std::cmp::Reverse(*charged));
        let sum = parts.iter().fold(0_i64, |sum, (_, charged)| sum.saturating_add(charged.nanos()));
        Ok(Week { first, last, sum: NanoUsd::from_nanos(sum), parts })
    }

    /// Writes a message about everything that was found.
    pub(crate) async fn message(
        &self,
        StoredAlert { alert, reported, .. }: &StoredAlert,
        found: &[(AlertSubject, AlertFinding)],
        public_url: Option<&str>,
    ) -> Result<AlertMessage, StoreError> {
        let mut lines = Vec::new();
        for (subject, finding) in found.iter().take(MAX_LINES) {
            lines.push(self.sentence(*subject, finding).await?);
        }
        if found.len() > MAX_LINES {
            lines.push(format!("And {} more.", found.len() - MAX_LINES));
        }
        if reported.len() >= MAX_REPORTED {
            lines.push(
                "This alert has reported all that it may for now. Others are not reported until its interval ends."
                    .to_owned(),
            );
        }
        let (title, path) = if let [(subject, finding)] = found {
            let title = lines.remove(0);
            lines.splice(0..0, self.details(finding).await?);
            (title, page_of(*subject, finding))
        } else {
            let what = match alert.rule {
                Rule::SpendJump => "spend far more than usual",
                Rule::LimitShare => "are close to a limit",
                Rule::Refused | Rule::CreditDays | Rule::WeeklyReport => "are refused",
            };
            (format!("{} API keys and groups {what}", found.len()), "/dashboard/events".to_owned())
        };
        let url = public_url.map(|base| format!("{}{path}", base.trim_end_matches('/')));
        Ok(AlertMessage::new(alert, &title, lines, advice(alert.rule)).with_url(url))
    }

    async fn sentence(&self, subject: AlertSubject, finding: &AlertFinding) -> Result<String, StoreError> {
        let who = self.name(subject).await?;
        Ok(match finding {
            AlertFinding::Event(event) => match event.kind.threshold() {
                None => who,
                Some(Threshold { bound: MoneyBound::Credit, .. }) => {
                    format!("{who} is refused, because its credit is used up")
                }
                Some(threshold) => {
                    let limit = format!("its limit of {}{}", usd(threshold.amount), per(threshold.bound));
                    if threshold.percent >= 100 {
                        format!("{who} is refused, because {limit} is used up")
                    } else {
                        format!("{who} has used {} % of {limit}", threshold.percent)
                    }
                }
            },
            AlertFinding::Jump(SpendJump { jump, .. }, _) => {
                let than = jump.times.map_or(", and hardly anything before".to_owned(), |times| {
                    format!(", {times} times its usual amount")
                });
                format!("{who} has spent {} in the last {} minutes{than}", usd(jump.spent), jump.minutes)
            }
            AlertFinding::Credit(_, 0) => format!("the credit of {who} lasts for less than a day"),
            AlertFinding::Credit(_, 1) => format!("the credit of {who} lasts for one more day"),
            AlertFinding::Credit(_, days) => format!("the credit of {who} lasts for {days} more days"),
            AlertFinding::Week(week) => {
                format!("{who} spent {} from {} to {} (UTC)", usd(week.sum), week.first, week.last)
            }
        })
    }

    /// Returns the lines that only a message about a single finding contains.
    async fn details(&self, finding: &AlertFinding) -> Result<Vec<String>, StoreError> {
        Ok(match finding {
            AlertFinding::Event(event) => {
                let used = event.kind.threshold().map(|of| format!("{} is used.", usd(of.used)));
                used.into_iter().collect()
            }
            AlertFinding::Jump(..) => Vec::new(),
            AlertFinding::Credit(credit, _) => vec![format!("{} is left.", usd(*credit))],
            AlertFinding::Week(week) => {
                let mut lines = Vec::new();
                for (part, charged) in week.parts.iter().take(MAX_LINES) {
                    let name = match part {
                        SpendPart::Group(Some(group)) => self.name(AlertSubject::Group(*group)).await?,
                        SpendPart::Group(None) => "keys without a group".to_owned(),
                        _ => "others".to_owned(),
                    };
                    lines.push(format!("{}: {name}", usd(*charged)));
                }
                if week.parts.len() > MAX_LINES {
                    lines.push(format!("And {} more groups.", week.parts.len() - MAX_LINES));
                }
                lines
            }
        })
    }

    async fn group_of(&self, key: KeyId) -> Result<Option<GroupId>, StoreError> {
        let found = self.management.key_in(AccountReach::whole(self.account), key).await;
        Ok(known(found)?.and_then(|key| key.spend.group))
    }

    async fn name(&self, subject: AlertSubject) -> Result<String, StoreError> {
        let whole = AccountReach::whole(self.account);
        Ok(match subject {
            AlertSubject::Key(id) => {
                let key = known(self.management.key_in(whole, id).await)?;
                let label = key.map(|key| if key.label.is_empty() { key.hint } else { key.label });
                format!("the API key {}", label.unwrap_or_else(|| id.to_string()))
            }
            AlertSubject::Group(id) => {
                let group = known(self.management.group_in(whole, id).await)?;
                let name = group.map(|group| group.name).filter(|name| !name.is_empty());
                format!("the group {}", name.unwrap_or_else(|| id.to_string()))
            }
            AlertSubject::Account(id) => {
                let funds = self.management.funds(id).await?;
                format!("the account {}", funds.map_or_else(|| id.to_string(), |funds| funds.name))
            }
        })
    }
}

/// Returns the object, or `None` if it is gone.
fn known<T>(found: Result<T, Error<Refused>>) -> Result<Option<T>, StoreError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Refused(_)) => Ok(None),
        Err(Error::Store(cause)) => Err(cause),
    }
}

/// Returns the path of the page about a finding.
fn page_of(subject: AlertSubject, finding: &AlertFinding) -> String {
    match (subject, finding) {
        (AlertSubject::Key(id), _) => format!("/dashboard/keys/{id}"),
        (AlertSubject::Group(id), _) => format!("/dashboard/groups/{id}"),
        (AlertSubject::Account(_), AlertFinding::Week(_)) => "/dashboard".to_owned(),
        (
            AlertSubject::Account(_),
            AlertFinding::Event(_) | AlertFinding::Jump(..) | AlertFinding::Credit(..),
        ) => "/dashboard/credit".to_owned(),
    }
}

/// Describes what to do about what an alert reports.
const fn advice(rule: Rule) -> &'static str {
    match rule {
        Rule::SpendJump => "If this is not expected, disable the key on its page and look at its requests.",
        Rule::LimitShare => {
            "Raise the limit if the spend is expected. Requests are refused once it is used up."
        }
        Rule::Refused => "Raise the limit or add credit, or wait until the limit resets.",
        Rule::CreditDays => "Add credit, or lower the limits of keys and groups.",
        Rule::WeeklyReport => "See the overview for each day, key and model.",
    }
}

const fn per(bound: MoneyBound) -> &'static str {
    match bound {
        MoneyBound::Limit | MoneyBound::Credit => "",
        MoneyBound::Hour => " an hour",
        MoneyBound::Day => " a day",
        MoneyBound::Week => " a week",
        MoneyBound::Month => " a month",
    }
}
