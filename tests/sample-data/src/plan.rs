//! The groups and keys of the sample.

use std::time::Duration;

use domain::ledger::BoundsPatch;
use shared::{calendar::Per, money::NanoUsd, time::Timestamp, wire::Limit};

use crate::chance::Chance;

/// Number of days that the sample covers, including the last day.
pub(crate) const DAYS: u64 = 62;

/// Names of the accounts. Nearly everything happens in the first account.
pub(crate) const ACCOUNTS: [&str; 14] = [
    "default",
    "initech",
    "acme",
    "globex",
    "hooli",
    "umbrella",
    "stark",
    "wayne",
    "tyrell",
    "soylent",
    "wonka",
    "vandelay",
    "cyberdyne",
    "pied-piper",
];
/// Index of the account that runs out of credit.
pub(crate) const INITECH: usize = 1;

/// Groups, each with the index of its parent and its monthly limit in USD. Parents come before their groups.
pub(crate) const GROUPS: [(&str, Option<usize>, Option<i64>); 21] = [
    ("Engineering", None, Some(120)),
    ("Product", None, Some(60)),
    ("Support", None, None),
    ("Marketing", None, Some(20)),
    ("Research", None, None),
    ("Courses", None, None),
    ("Search", Some(0), Some(40)),
    ("Platform", Some(0), None),
    ("Mobile", Some(0), None),
    ("Data", Some(0), None),
    ("Code review", Some(0), Some(30)),
    ("Growth", Some(1), None),
    ("Payments", Some(1), None),
    ("Onboarding", Some(1), None),
    ("Chat", Some(2), None),
    ("Customer success (Europe)", Some(2), None),
    ("Agents", Some(4), None),
    ("Evaluation", Some(4), Some(25)),
    ("Algorithms", Some(5), None),
    ("Databases", Some(5), None),
    ("Tiny team", Some(4), None),
];
const AGENTS: usize = 16;
const ALGORITHMS: usize = 18;
const DATABASES: usize = 19;
pub(crate) const TINY_TEAM: usize = 20;

const LARGE: &[&str] = &["claude-sonnet-5-5", "gpt-5.6", "mistral-large-4"];
const SMALL: &[&str] = &["claude-haiku-5", "gpt-5.6-mini", "gemini-3-flash", "llama-4-70b"];
const ONE: &[&str] = &["claude-sonnet-5-5"];

/// How a key stops working before the end of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyEnding {
    Revoked,
    Disabled,
}

/// The part that a key plays in the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRole {
    /// The key sends ordinary traffic, as most keys do.
    Usual,
    /// The key uses up its own limit.
    Student,
    /// The key uses up the limit of its group.
    OfTinyTeam,
    /// The key no longer works, but is still used for this many calls on the last day.
    Ended(u64),
    /// The key requests a model that it may not use.
    WrongModel,
    /// The key sends more requests per minute than its rate limit allows.
    Rated,
    /// In the last five minutes, the key spends 40 times its usual amount.
    Runaway,
}

/// A key, and how it is used.
pub(crate) struct KeyPlan {
    pub(crate) label: String,
    pub(crate) group: Option<usize>,
    pub(crate) begins: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) ending: Option<(Timestamp, KeyEnding)>,
    pub(crate) bounds: BoundsPatch,
    pub(crate) part: KeyRole,
    /// How often the account's requests use this key, relative to the weights of the other keys.
    pub(crate) weight: u64,
    pub(crate) models: &'static [&'static str],
    pub(crate) prompt: [u64; 2],
    pub(crate) completion: [u64; 2],
    pub(crate) has_users: bool,
}

impl KeyPlan {
    fn new(label: String, group: Option<usize>, begins: Timestamp) -> Self {
        Self {
            label,
            group,
            begins,
            expires_at: None,
            ending: None,
            bounds: BoundsPatch::default(),
            part: KeyRole::Usual,
            weight: 1,
            models: SMALL,
            prompt: [300, 2_500],
            completion: [40, 500],
            has_users: false,
        }
    }

    /// Returns the key's weight at this time. It is zero before the key exists and after it stops working.
    pub(crate) fn weight_at(&self, at: Timestamp) -> u64 {
        let has_ended = self.ending.is_some_and(|(end, _)| end <= at);
        let has_expired = self.expires_at.is_some_and(|end| end <= at);
        if at <= self.begins || has_ended || has_expired { 0 } else { self.weight }
    }
}

/// Returns the keys of an account.
pub(crate) fn keys(account: usize, until: Timestamp, chance: &mut Chance) -> Vec<KeyPlan> {
    let before = |hours: u64| until.minus(Duration::from_hours(hours));
    let begin = before(24 * (DAYS - 1) + 12);
    if account > 0 {
        let number = 1 + u64::from(account.is_multiple_of(3));
        let key = |n: u64| KeyPlan::new(format!("{}-{}", ACCOUNTS[account], 1 + n), None, begin);
        return (0..number).map(key).collect();
    }
    let mut keys = Vec::new();
    services(&mut keys, begin);
    people(&mut keys, begin, chance);
    for n in 0..60 {
        let group = if n < 45 { ALGORITHMS } else { DATABASES };
        let key = KeyPlan::new(format!("student-{:02}@example.edu", n + 1), Some(group), before(24 * 30));
        let (part, limit) =
            if n < 45 { (KeyRole::Student, 7_000_000) } else { (KeyRole::Usual, 1_000_000_000) };
        keys.push(KeyPlan { part, weight: u64::from(n >= 45), bounds: limited(limit), ..key });
    }
    special(&mut keys, begin, before);
    keys
}

/// Adds the keys of programs that call models all day.
fn services(keys: &mut Vec<KeyPlan>, begin: Timestamp) {
    let names = [
        ("search-ranking", 6),
        ("search-suggest", 6),
        ("ci-review", 10),
        ("mobile-assistant", 8),
        ("etl-labels", 9),
        ("growth-mails", 11),
        ("fraud-notes", 12),
        ("onboarding-tour", 13),
        ("support-chat", 14),
        ("eu-success", 15),
        ("agent-planner", AGENTS),
        ("agent-browser", AGENTS),
        ("agent-coder", AGENTS),
        ("eval-nightly", 17),
        ("platform-docs", 7),
        ("seo-texts", 3),
    ];
    for (place, (name, group)) in names.into_iter().enumerate() {
        for stage in ["prod", "staging", "dev"] {
            let key = KeyPlan::new(format!("{name}-{stage}"), Some(group), begin);
            let is_prod = stage == "prod";
            let weight = match (is_prod, place % 4) {
                (true, 0) => 80,
                (true, 1) => 40,
                (true, _) => 25,
                (false, _) => 3,
            };
            let is_large = place % 2 == 0;
            let models = if is_large { LARGE } else { SMALL };
            let prompt = if is_prod && is_large { [800, 4_000] } else { [300, 2_500] };
            keys.push(KeyPlan { weight, models, prompt, has_users: place % 3 == 0, ..key });
        }
    }
}

/// Adds the keys of people. Some of these keys no longer work.
fn people(keys: &mut Vec<KeyPlan>, begin: Timestamp, chance: &mut Chance) {
    const NAMES: [&str; 20] = [
        "ada", "ben", "chloe", "dmitri", "elif", "farid", "grace", "hana", "ivan", "jun", "kofi", "lena",
        "mateo", "nia", "omar", "priya", "quinn", "rosa", "sven", "tess",
    ];
    for n in 0..163_u64 {
        let name = NAMES[usize::try_from(n).unwrap_or_default() % NAMES.len()];
        let group = chance.below(24);
        let group = usize::try_from(group).ok().filter(|group| *group < 18);
        let begins = begin.plus(Duration::from_hours(chance.below(24 * 50)));
        let key = KeyPlan::new(format!("{name}-laptop-{}", 1 + n / 20), group, begins);
        let later = |days: u64| begins.plus(Duration::from_hours(24 * days));
        let ending = (n % 8 == 3).then(|| (later(7), KeyEnding::Revoked));
        let ending = if n % 40 == 5 { Some((later(8), KeyEnding::Disabled)) } else { ending };
        let expires_at = (n % 20 == 11).then(|| later(9));
        let per_month = (n % 4 == 0).then(|| monthly(5 + n.cast_signed() % 20));
        let models = if n % 5 == 0 { LARGE } else { SMALL };
        let weight = 1 + u64::from(n % 3 == 0);
        keys.push(KeyPlan {
            ending,
            expires_at,
            bounds: per_month.unwrap_or_default(),
            models,
            weight,
            ..key
        });
    }
}

/// Adds the keys that play a special part in the story.
fn special(keys: &mut Vec<KeyPlan>, begin: Timestamp, before: impl Fn(u64) -> Timestamp) {
    let plan =
        |label: &str, group, part| KeyPlan { part, weight: 0, ..KeyPlan::new(label.into(), group, begin) };
    let runaway = plan("runaway-agent", Some(AGENTS), KeyRole::Runaway);
    keys.push(KeyPlan { models: ONE, prompt: [3_900, 4_100], completion: [330, 370], ..runaway });
    for name in ["tiny-a", "tiny-b"] {
        keys.push(KeyPlan { models: LARGE, ..plan(name, Some(TINY_TEAM), KeyRole::OfTinyTeam) });
    }
    let hackathon = plan("hackathon", None, KeyRole::Ended(40));
    keys.push(KeyPlan { expires_at: Some(before(24 * 5)), weight: 2, ..hackathon });
    let leaked = plan("in-a-repository", Some(7), KeyRole::Ended(35));
    keys.push(KeyPlan { ending: Some((before(24 * 3), KeyEnding::Revoked)), weight: 4, ..leaked });
    let paused = plan("paused-crawler", Some(9), KeyRole::Ended(30));
    keys.push(KeyPlan { ending: Some((before(24 * 9), KeyEnding::Disabled)), weight: 4, ..paused });
    let strict =
        BoundsPatch { models: Some(Some(vec!["claude-haiku-5".to_owned()])), ..BoundsPatch::default() };
    keys.push(KeyPlan { bounds: strict, models: ONE, ..plan("haiku-only", Some(12), KeyRole::WrongModel) });
    let rated = BoundsPatch { requests_per_minute: Some(Some(3)), ..BoundsPatch::default() };
    keys.push(KeyPlan { bounds: rated, ..plan("load-test", Some(7), KeyRole::Rated) });
    let soon = plan("contractor-integration-test-account", Some(13), KeyRole::Usual);
    let in_three_days = before(0).plus(Duration::from_hours(72));
    keys.push(KeyPlan { expires_at: Some(in_three_days), weight: 5, bounds: limited(500_000_000), ..soon });
    for name in ["legacy-export", "wiki-bot", "newsletter", "translations"] {
        keys.push(KeyPlan { weight: 3, ..plan(name, Some(3), KeyRole::Usual) });
    }
}

fn limited(nanos: i64) -> BoundsPatch {
    BoundsPatch { limit: Some(Some(NanoUsd::from_nanos(nanos))), ..BoundsPatch::default() }
}

/// Returns a limit of this many USD per month.
pub(crate) fn monthly(usd: i64) -> BoundsPatch {
    windows(NanoUsd::from_usd(usd), Per::Month)
}

/// Returns a limit of this amount in each calendar window of this length.
pub(crate) fn windows(amount: NanoUsd, per: Per) -> BoundsPatch {
    BoundsPatch {
        windows: Some(vec![Limit { amount, per, raised: None, window: None }]),
        ..BoundsPatch::default()
    }
}
