//! The usage listings by hour, and by the user that callers name in requests.

use std::{collections::BTreeSet, io::Write, ops::RangeInclusive};

use clap::ValueEnum;
use domain::usage::{Day, PartCounts};
use key_service_management::usage::{Grouping, Parts, UsageSearch, UsageSum, UserPart};
use serde::Serialize;
use shared::{ids::KeyId, money::NanoUsd, table};

use crate::output::write_json;

/// Columns of both listings. In front of them are the columns that name the hour, or the day and the user.
const COLUMNS: [&str; 5] = ["REQUESTS", "PROMPT", "CACHED", "COMPLETION", "CHARGED"];

/// How to list usage if not by day, key and model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageBy {
    Hour,
    User,
}

/// A line in JSON. Of `hour`, `day` and `user`, it has only the members by which the listing is grouped.
#[derive(Serialize)]
struct PartLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hour: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<KeyId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    /// Null on two kinds of lines: for requests without a user, and for the sum over all users that are not counted
    /// separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[expect(
        clippy::option_option,
        reason = "a line that is not grouped by user lacks the member instead of having null"
    )]
    user: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    other_users: bool,
    requests: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
    charged: NanoUsd,
}

impl UsageBy {
    pub(crate) fn search(self, days: RangeInclusive<Day>, key: Option<KeyId>) -> UsageSearch {
        let by = match self {
            Self::Hour => BTreeSet::from([Grouping::Hour, Grouping::Key, Grouping::Model]),
            Self::User => BTreeSet::from([Grouping::Day, Grouping::User]),
        };
        UsageSearch { days, key, group: None, within: None, by, top: None }
    }

    pub(crate) fn write(
        self,
        sums: &[UsageSum],
        json: bool,
        out: &mut (dyn Write + Send),
    ) -> anyhow::Result<()> {
        if json {
            return write_json(out, sums.iter().map(line));
        }
        let of_parts: &[&str] = match self {
            Self::Hour => &["HOUR", "KEY", "MODEL"],
            Self::User => &["DAY", "USER"],
        };
        table::write(out, &[of_parts, &COLUMNS[..]].concat(), sums.iter().map(row))?;
        Ok(())
    }
}

fn line((of, counts): &UsageSum) -> PartLine<'_> {
    let PartCounts { requests, prompt, cached, completion, charged } = *counts;
    let Parts { day, hour, key, model, user, .. } = of;
    PartLine {
        day: day.map(|day| day.to_string()),
        hour: hour.map(|hour| hour.begins().to_string()),
        key_id: *key,
        model: model.as_deref(),
        user: user.as_ref().map(|user| match user {
            UserPart::Named(user) => Some(user.as_str()),
            UserPart::Unnamed | UserPart::Others => None,
        }),
        other_users: *user == Some(UserPart::Others),
        requests,
        prompt_tokens: prompt,
        cached_tokens: cached,
        completion_tokens: completion,
        charged,
    }
}

fn row((of, counts): &UsageSum) -> Vec<String> {
    let PartCounts { requests, prompt, cached, completion, charged } = counts;
    let user = of.user.as_ref().map(|user| match user {
        UserPart::Named(user) => user.clone(),
        UserPart::Unnamed => "-".into(),
        UserPart::Others => "(others)".into(),
    });
    let parts = [
        of.day.map(|day| day.to_string()),
        of.hour.map(|hour| hour.begins().to_string()),
        of.key.map(|key| key.to_string()),
        of.model.clone(),
        user,
    ];
    let counts = [
        requests.to_string(),
        prompt.to_string(),
        cached.to_string(),
        completion.to_string(),
        charged.to_string(),
    ];
    parts.into_iter().flatten().chain(counts).collect()
}
