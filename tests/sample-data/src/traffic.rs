//! When keys are used, and for which requests.

use std::time::Duration;

use shared::time::Timestamp;

use crate::{
    chance::Chance,
    plan::{DAYS, KeyPlan},
};

const DAY: u64 = 24 * 3_600_000;
/// Share of each hour in UTC: people work during the day, and jobs run at night.
const BY_HOUR: [u64; 24] = [3, 5, 5, 2, 1, 2, 4, 8, 14, 18, 18, 16, 13, 16, 18, 18, 15, 12, 8, 6, 5, 4, 3, 3];
/// Share of each weekday, beginning with Thursday, the weekday of 1 January 1970.
const BY_WEEKDAY: [u64; 7] = [20, 18, 6, 5, 18, 20, 20];
/// Time before the end during which only the runaway key sends requests.
const QUIET: Duration = Duration::from_mins(6);
const UPSTREAMS: [&str; 2] = ["eu-1", "us-1"];

pub(crate) struct SampleRequest {
    pub(crate) account: usize,
    pub(crate) key: usize,
    pub(crate) model: &'static str,
    pub(crate) prompt: u64,
    pub(crate) completion: u64,
    pub(crate) user: Option<String>,
    pub(crate) latency_ms: u64,
    pub(crate) upstream: &'static str,
}

impl SampleRequest {
    /// Returns a typical request with this key.
    pub(crate) fn usual(account: usize, key: usize, plan: &KeyPlan, chance: &mut Chance) -> Self {
        let models = plan.models;
        let place = usize::try_from(chance.below(models.len() as u64 + 2)).unwrap_or_default();
        let completion = chance.between(plan.completion);
        Self {
            account,
            key,
            model: models.get(place).or(models.first()).copied().unwrap_or_default(),
            prompt: chance.between(plan.prompt),
            completion,
            user: plan.has_users.then(|| format!("user-{}", 1 + chance.below(40))),
            latency_ms: 200 + completion * 12 + chance.below(900),
            upstream: UPSTREAMS[usize::from(chance.below(3) == 0)],
        }
    }
}

/// Spreads a number of requests over the days and keys of an account.
pub(crate) fn spread(
    (account, keys): (usize, &[KeyPlan]),
    number: usize,
    until: Timestamp,
    chance: &mut Chance,
) -> Vec<(Timestamp, SampleRequest)> {
    let midnight = until.millis().cast_unsigned() / DAY * DAY;
    let first = midnight / DAY + 1 - DAYS;
    let part_of_today = until.millis().cast_unsigned() - midnight;
    let by_day: Vec<u64> = (0..DAYS)
        .map(|day| {
            let weekday = usize::try_from((first + day) % 7).unwrap_or_default();
            let weight = BY_WEEKDAY[weekday] * (60 + day);
            if day + 1 == DAYS { weight * (part_of_today / 3_600_000 + 1) / 24 } else { weight }
        })
        .collect();
    let last = until.minus(QUIET);
    let mut requests = Vec::with_capacity(number);
    while requests.len() < number {
        let day = first + chance.weighted(&by_day) as u64;
        let hour = chance.weighted(&BY_HOUR) as u64;
        let millis = day * DAY + hour * 3_600_000 + chance.below(3_600_000);
        let at = Timestamp::from_millis(millis.cast_signed());
        let weights: Vec<u64> = keys.iter().map(|key| key.weight_at(at)).collect();
        if at > last || weights.iter().sum::<u64>() == 0 {
            continue;
        }
        let key = chance.weighted(&weights);
        requests.push((at, SampleRequest::usual(account, key, &keys[key], chance)));
    }
    requests
}

/// Sends a number of requests with a key within a period.
pub(crate) fn burst(
    (account, key): (usize, usize),
    plan: &KeyPlan,
    (from, lasts): (Timestamp, Duration),
    number: u64,
    chance: &mut Chance,
) -> Vec<(Timestamp, SampleRequest)> {
    let step = lasts / u32::try_from(number.max(1)).unwrap_or(u32::MAX);
    let at = |n: u64| from.plus(step * u32::try_from(n).unwrap_or_default());
    (0..number).map(|n| (at(n), SampleRequest::usual(account, key, plan, chance))).collect()
}
