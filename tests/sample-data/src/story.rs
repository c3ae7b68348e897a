//! The story of the sample: its steps, in chronological order.

use std::{path::Path, time::Duration};

use anyhow::anyhow;
use domain::{
    event::Actor,
    group::{Group, GroupPatch},
    key::{ApiKey, KeyPatch},
    member::Role,
    webhook::{DisabledReason, Webhook, WebhookPatch, WebhookUrl},
};
use key_service_management::{accounts::payments::NewDeposit, governed::Governed as _};
use shared::{
    calendar::Per,
    ids::{AccountId, GroupId, KeyId, WebhookId},
    money::NanoUsd,
    secret::ExposeSecret,
    time::Timestamp,
};

use crate::{
    chance::{Chance, StoryClock},
    office::{SampleOffice, done},
    plan::{self, ACCOUNTS, DAYS, GROUPS, INITECH, KeyEnding, KeyPlan, KeyRole, TINY_TEAM, monthly},
    traffic::{SampleRequest, burst, spread},
};

/// Number of requests in the first account, and in each other account. Requests of keys with a special part are not
/// included.
const REQUESTS: [usize; 2] = [6_700, 60];
/// Members of the first account. A lead has the index of the group that it manages.
const MEMBERS: [(&str, Option<usize>); 7] = [
    ("owner", None),
    ("maya@example.com", None),
    ("viewer@example.com", None),
    ("finance@example.com", None),
    ("audit@example.com", None),
    ("lead-search@example.com", Some(6)),
    ("lead-courses@example.com", Some(5)),
];
/// Number of owners, who come first in the list of members. The other members are viewers or leads.
const OWNERS: usize = 2;
const WEBHOOKS: [&str; 3] =
    ["https://hooks.example.com/billing", "https://hooks.example.com/old", "https://hooks.example.com/new"];
/// The runaway key begins this long before the end, and sends this many requests.
const RUNAWAY: (Duration, u64) = (Duration::from_mins(5), 15);

#[derive(Default)]
pub(crate) struct SampleCounts {
    pub(crate) bills: u64,
    pub(crate) refused: u64,
}

enum StoryStep {
    Account(usize),
    Deposit(usize, NanoUsd),
    Group(usize),
    Member(usize),
    Webhook(usize),
    WebhookFails(usize),
    Key(usize, usize),
    End(usize, KeyEnding),
    Request(SampleRequest),
}

/// Ids and secrets of the objects that have been created so far.
struct MadeSoFar {
    accounts: Vec<AccountId>,
    groups: Vec<GroupId>,
    webhooks: Vec<WebhookId>,
    /// The keys of each account, in the order of the account's plans.
    keys: Vec<Vec<Option<(KeyId, String)>>>,
}

/// Fills a data directory with the days before `until`.
pub(crate) async fn tell(dir: &Path, until: Timestamp, seed: u64) -> anyhow::Result<SampleCounts> {
    let mut chance = Chance::new(seed);
    let plans: Vec<Vec<KeyPlan>> =
        (0..ACCOUNTS.len()).map(|account| plan::keys(account, until, &mut chance)).collect();
    let begin = until.minus(Duration::from_hours(24 * DAYS));
    let mut steps = beginnings(begin, until);
    for (account, keys) in plans.iter().enumerate() {
        for (key, plan) in keys.iter().enumerate() {
            steps.push((plan.begins, StoryStep::Key(account, key)));
            steps.extend(plan.ending.map(|(at, ending)| (at, StoryStep::End(key, ending))));
            let special = special((account, key), plan, until, &mut chance);
            steps.extend(special.into_iter().map(|(at, request)| (at, StoryStep::Request(request))));
        }
        let requests = spread((account, keys), REQUESTS[usize::from(account > 0)], until, &mut chance);
        steps.extend(requests.into_iter().map(|(at, request)| (at, StoryStep::Request(request))));
    }
    steps.sort_by_key(|(at, _)| *at);
    let office = SampleOffice::open(dir, StoryClock::new(begin, seed), until).await?;
    let keys = plans.iter().map(|keys| keys.iter().map(|_| None).collect()).collect();
    let mut known = MadeSoFar { accounts: Vec::new(), groups: Vec::new(), webhooks: Vec::new(), keys };
    let mut told = SampleCounts::default();
    for (at, step) in steps {
        office.clock.set(at);
        take(&office, &mut known, &plans, step, &mut told).await?;
    }
    office.close(dir).await?;
    Ok(told)
}

/// Returns the steps that create the accounts, their credit, their groups, their members and their webhooks.
fn beginnings(begin: Timestamp, until: Timestamp) -> Vec<(Timestamp, StoryStep)> {
    let minute = |n: usize| begin.plus(Duration::from_mins(n as u64));
    let day = |n: u64| begin.plus(Duration::from_hours(24 * n));
    let mut steps = Vec::new();
    for account in 0..ACCOUNTS.len() {
        let amount = match account {
            0 => NanoUsd::from_usd(60),
            INITECH => NanoUsd::from_nanos(90_000_000),
            _ => NanoUsd::from_usd(5),
        };
        steps.push((minute(account), StoryStep::Account(account)));
        steps.push((minute(account), StoryStep::Deposit(account, amount)));
    }
    steps.push((day(30), StoryStep::Deposit(0, NanoUsd::from_usd(80))));
    steps.extend((0..GROUPS.len()).map(|group| (minute(30 + group), StoryStep::Group(group))));
    steps.extend((0..MEMBERS.len()).map(|member| (minute(60 + member), StoryStep::Member(member))));
    steps.extend((0..2).map(|webhook| (minute(90 + webhook), StoryStep::Webhook(webhook))));
    steps.extend([(day(5), StoryStep::WebhookFails(0)), (day(8), StoryStep::WebhookFails(1))]);
    // This webhook is created last. A webhook gets no events from before its creation, so an installation with the
    // sample sends nothing to anybody.
    steps.push((until, StoryStep::Webhook(2)));
    steps
}

/// Returns the requests of a key that plays a special part.
fn special(
    of: (usize, usize),
    plan: &KeyPlan,
    until: Timestamp,
    chance: &mut Chance,
) -> Vec<(Timestamp, SampleRequest)> {
    let (account, key) = of;
    let before = |hours: u64| until.minus(Duration::from_hours(hours));
    let hour = Duration::from_hours(1);
    match plan.part {
        KeyRole::Usual if account == INITECH => burst(of, plan, (before(2), hour), 60, chance),
        KeyRole::Usual => Vec::new(),
        KeyRole::Student => burst(of, plan, (before(3), hour), 7, chance),
        KeyRole::OfTinyTeam => burst(of, plan, (before(1), hour / 2), 12, chance),
        KeyRole::Ended(calls) => burst(of, plan, (before(3), 2 * hour), calls, chance),
        KeyRole::WrongModel => burst(of, plan, (before(26), 20 * hour), 20, chance),
        KeyRole::Rated => burst(of, plan, (before(30), Duration::from_mins(1)), 40, chance),
        KeyRole::Runaway => {
            let usual = (1..28).flat_map(|day| [(day, 4), (day, 5), (day, 7)]);
            let mut requests = Vec::new();
            for (day, hours) in usual {
                requests.extend(burst(of, plan, (before(24 * day + hours), hour / 2), 3, chance));
            }
            let (lasts, number) = RUNAWAY;
            for (at, mut request) in burst(of, plan, (until.minus(lasts), lasts), number, chance) {
                (request.prompt, request.completion) = (51_700, 1_000);
                requests.push((at, SampleRequest { account, key, ..request }));
            }
            requests
        }
    }
}

async fn take(
    office: &SampleOffice,
    known: &mut MadeSoFar,
    plans: &[Vec<KeyPlan>],
    step: StoryStep,
    told: &mut SampleCounts,
) -> anyhow::Result<()> {
    let management = &office.management;
    let operator = || Actor::Operator { name: "operator".into() };
    let by = |account: AccountId| management.by(account, operator());
    match step {
        StoryStep::Account(account) => {
            let made = management.create_account(ACCOUNTS[account], NanoUsd::ZERO, operator()).await;
            known.accounts.push(done(made)?);
        }
        StoryStep::Deposit(account, amount) => {
            let deposit = NewDeposit { note: "bank transfer".into(), ..NewDeposit::of(amount) };
            done(management.deposit(known.accounts[account], deposit, operator()).await)?;
        }
        StoryStep::Group(group) => {
            let (name, parent, limit) = GROUPS[group];
            let bounds = match limit {
                Some(usd) => monthly(usd),
                None if group == TINY_TEAM => plan::windows(NanoUsd::from_nanos(20_000_000), Per::Day),
                None => plan::windows(NanoUsd::from_usd(10), Per::Day),
            };
            let parent = Some(parent.map(|parent| known.groups[parent]));
            let settings = GroupPatch { name: Some(name.into()), parent, bounds, ..GroupPatch::default() };
            let group = done(Group::create(by(known.accounts[0]), settings, None).await)?;
            known.groups.push(group.made.into_inner().id);
        }
        StoryStep::Member(member) => {
            let (name, led) = MEMBERS[member];
            let role = match led {
                Some(group) => Role::Lead(known.groups[group]),
                None if member < OWNERS => Role::Owner,
                None => Role::Viewer,
            };
            done(management.add_member(known.accounts[0], name, role, operator()).await)?;
        }
        StoryStep::Webhook(webhook) => {
            let url = done(WebhookUrl::parse(WEBHOOKS[webhook]))?;
            let settings = WebhookPatch { url: Some(url), ..WebhookPatch::default() };
            let webhook = done(Webhook::create(by(known.accounts[0]), settings, None).await)?;
            known.webhooks.push(webhook.made.into_inner().id);
        }
        StoryStep::WebhookFails(webhook) => {
            let disabled = Some(Some(DisabledReason::Failing));
            let change = WebhookPatch { disabled, ..WebhookPatch::default() };
            let account = management.by(known.accounts[0], Actor::System);
            done(Webhook::update(account, known.webhooks[webhook], change).await)?;
        }
        StoryStep::Key(account, key) => {
            let plan = &plans[account][key];
            let settings = KeyPatch {
                label: Some(plan.label.clone()),
                group: Some(plan.group.map(|group| known.groups[group])),
                expires_at: Some(plan.expires_at.map(Timestamp::to_whole_seconds)),
                bounds: plan.bounds.clone(),
                ..KeyPatch::default()
            };
            let issued = done(ApiKey::create(by(known.accounts[account]), settings, None).await)?;
            let secret = issued.secret.ok_or_else(|| anyhow!("the key exists already"))?;
            known.keys[account][key] = Some((issued.made.into_inner().id, secret.expose_secret().to_owned()));
        }
        StoryStep::End(key, ending) => {
            let Some((id, _)) = &known.keys[0][key] else { return Ok(()) };
            let ended = match ending {
                KeyEnding::Revoked => ApiKey::end(by(known.accounts[0]), *id).await,
                KeyEnding::Disabled => {
                    let change = KeyPatch { disabled: Some(true), ..KeyPatch::default() };
                    ApiKey::update(by(known.accounts[0]), *id, change).await
                }
            };
            done(ended)?;
        }
        StoryStep::Request(request) => {
            let Some((_, secret)) = &known.keys[request.account][request.key] else { return Ok(()) };
            let was_billed = office.request(secret, &request).await?;
            told.bills += u64::from(was_billed);
            told.refused += u64::from(!was_billed);
        }
    }
    Ok(())
}
