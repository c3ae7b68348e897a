//! Commands on their way into `scripts/ledger.lua`, and its outcomes on their way back.

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};
use shared::{
    ids::{AccountId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use super::{
    link::Link,
    names::Names,
    script::{Arguments, Lua},
};
use crate::{
    domain::{
        ledger::{Command, Ending, Outcome, Progress, RecordId, Refused, Settlement},
        usage::Day,
    },
    store::Outcomes,
};

/// Commands that one run of the script takes; it holds up all of Redis for some 7 µs each. Longer batches are cut.
const BATCH: usize = 512;
/// The days that counters are kept are told to Redis in seconds.
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
/// Fields of a command beside its name, its key and its record.
const FIELDS: usize = 5;

/// How much is kept of what was billed.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub(super) journal_entries: u32,
    pub(super) usage_days: u32,
}

/// The way to the script, and what it is told beside commands.
pub(super) struct Fold<'a> {
    pub(super) link: &'a Link,
    pub(super) ledger: &'a Lua,
    pub(super) names: &'a Names,
    pub(super) kept: Kept,
    pub(super) account: AccountId,
    pub(super) now: Timestamp,
}

impl Fold<'_> {
    /// Applies the commands in their order. A batch that the script gives up on is tried again command by command, so
    /// that a record which cannot be read is the answer to its own commands alone.
    pub(super) async fn execute(&self, commands: &[Command]) -> RedisResult<Outcomes> {
        let mut all = Vec::with_capacity(commands.len());
        for batch in commands.chunks(BATCH) {
            match self.run(batch).await {
                Err(e) if gave_up(&e) => {
                    tracing::error!(error = %e, account = %self.account, "a record cannot be read; going on without it");
                    for command in batch {
                        all.push(self.run_alone(command).await?);
                    }
                }
                outcomes => all.extend(outcomes?),
            }
        }
        Ok(all)
    }

    async fn run(&self, commands: &[Command]) -> RedisResult<Outcomes> {
        outcomes(self.link.run(self.ledger, &self.arguments(commands)).await?, commands.len())
    }

    async fn run_alone(&self, command: &Command) -> RedisResult<Result<Outcome, Refused>> {
        match self.run(std::slice::from_ref(command)).await {
            Err(e) if gave_up(&e) => Ok(Err(Refused::Damaged)),
            outcomes => outcomes?.pop().ok_or_else(|| senseless("no outcome")),
        }
    }

    fn arguments(&self, commands: &[Command]) -> Arguments {
        let Self { names, account, now, kept, .. } = *self;
        let mut arguments = Arguments::keys([
            names.account(account),
            names.records(account),
            names.leases(account),
            names.journal(account),
            names.archive(account),
            names.deposits(account),
            names.counters(account, Day::of(now)),
        ]);
        let mut keys: Vec<KeyId> = Vec::new();
        arguments.value(now.millis().to_string());
        arguments.value(kept.journal_entries.to_string());
        // Today is kept for as many days as are over.
        arguments.value((SECONDS_PER_DAY * (u64::from(kept.usage_days) + 1)).to_string());
        for command in commands {
            let place = command.key().map_or(0, |key| {
                let known = keys.iter().position(|known| *known == key);
                1 + known.unwrap_or_else(|| {
                    arguments.key(names.key(account, key));
                    keys.push(key);
                    keys.len() - 1
                })
            });
            let (name, fields) = spell(command);
            arguments.value(name);
            arguments.value(place.to_string());
            arguments.value(match command.record() {
                None => String::new(),
                Some(RecordId::Generation(id)) => id.to_string(),
                Some(RecordId::Deposit(id)) => id.to_string(),
            });
            for field in fields {
                arguments.value(field);
            }
        }
        arguments
    }
}

/// Whether the script stopped at something that it could not read, before it changed anything. Whatever else a server
/// refuses (it is full, it is no master any more) is no fault of the commands.
fn gave_up(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError)
        && error.detail().is_some_and(|detail| detail.contains("user_script"))
}

/// A command's name and its fields in the order in which the script takes them.
fn spell(command: &Command) -> (&'static str, [String; FIELDS]) {
    let none = String::new;
    match command {
        Command::Deposit { amount: n, .. } => ("deposit", [amount(*n), none(), none(), none(), none()]),
        Command::Check { .. } => ("check", Default::default()),
        Command::Hold { model, least, enough, most, lease_until, .. } => {
            let lease_until = lease_until.millis().to_string();
            ("hold", [model.clone(), amount(*least), amount(*enough), amount(*most), lease_until])
        }
        Command::Extend { most, progress: Progress { usage, cost }, lease_until, .. } => {
            let lease_until = lease_until.millis().to_string();
            ("extend", [amount(*most), amount(*cost), tokens(*usage), lease_until, none()])
        }
        Command::Capture { total: Progress { usage, cost }, estimated, .. } => {
            let estimated = if *estimated { ESTIMATED } else { EXACT }.to_owned();
            ("capture", [amount(*cost), tokens(*usage), estimated, none(), none()])
        }
        Command::Release { .. } => ("release", Default::default()),
        Command::Expire { .. } => ("expire", Default::default()),
    }
}

const ESTIMATED: &str = "estimated";
const EXACT: &str = "exact";

/// What is more than anyone can own stays that when it is cut to one nano-USD more, and exact as a double.
fn amount(amount: NanoUsd) -> String {
    amount.nanos().clamp(-1, NanoUsd::MAX.nanos() + 1).to_string()
}

fn tokens(Usage { prompt, cached, completion }: Usage) -> String {
    format!("{prompt} {cached} {completion}")
}

/// No answer: there is no such account.
fn outcomes(answers: Option<Vec<String>>, asked: usize) -> RedisResult<Outcomes> {
    let Some(answers) = answers else { return Ok(vec![Err(Refused::UnknownKey); asked]) };
    let outcomes: Outcomes = answers
        .iter()
        .map(|answer| outcome(answer).ok_or_else(|| senseless(answer)))
        .collect::<RedisResult<_>>()?;
    if outcomes.len() == asked { Ok(outcomes) } else { Err(senseless("too few outcomes")) }
}

fn outcome(answer: &str) -> Option<Result<Outcome, Refused>> {
    let (word, rest) = answer.split_once(' ').unwrap_or((answer, ""));
    Some(match word {
        "deposited" => Ok(Outcome::Deposited(money(rest)?)),
        "allowed" => Ok(Outcome::Allowed),
        "held" => Ok(Outcome::Held(money(rest)?)),
        "extended" => {
            let (amount, state) = rest.split_once(' ')?;
            Ok(Outcome::Extended { amount: money(amount)?, revoked: state == "revoked" })
        }
        "captured" => Ok(Outcome::Captured(settlement(Ending::Captured, rest)?)),
        "released" => Ok(Outcome::Released),
        "expired" => Ok(Outcome::Expired(settlement(Ending::Expired, rest)?)),
        "not_due" => Ok(Outcome::NotDue),
        "gone" => Ok(Outcome::Gone),
        "unknown_key" => Err(Refused::UnknownKey),
        "revoked" => Err(Refused::Revoked),
        "key_expired" => Err(Refused::KeyExpired),
        "limit_reached" => Err(Refused::LimitReached),
        "credit_empty" => Err(Refused::CreditEmpty),
        "reserved" => Err(Refused::Reserved),
        "bad_deposit" => Err(Refused::BadDeposit),
        _ => return None,
    })
}

/// The record of a billed generation; `None` of anything else.
pub(super) fn settled(record: &str) -> Option<Settlement> {
    match outcome(record)?.ok()? {
        Outcome::Captured(settlement) | Outcome::Expired(settlement) => Some(settlement),
        Outcome::Deposited(_)
        | Outcome::Allowed
        | Outcome::Held(_)
        | Outcome::Extended { .. }
        | Outcome::Released
        | Outcome::NotDue
        | Outcome::Gone => None,
    }
}

/// The record of a settlement, behind the word that says its ending.
fn settlement(ending: Ending, text: &str) -> Option<Settlement> {
    let mut fields = text.splitn(8, ' ');
    let mut next = || fields.next();
    let (key, charged, at, cost) = (next()?.parse().ok()?, money(next()?)?, time(next()?)?, money(next()?)?);
    let (prompt, cached, completion) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?);
    let (completion, rest) = (completion.parse().ok()?, fields.next()?);
    let (estimated, model) = rest.split_once(' ')?;
    Some(Settlement {
        key,
        model: model.to_owned(),
        usage: Usage { prompt, cached, completion },
        cost,
        charged,
        ending,
        estimated: estimated == ESTIMATED,
        at,
    })
}

fn money(text: &str) -> Option<NanoUsd> {
    text.parse().ok().map(NanoUsd::from_nanos)
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(Timestamp::from_millis)
}

fn senseless(answer: &str) -> RedisError {
    (redis::ErrorKind::UnexpectedReturnType, "the ledger's script answered", answer.to_owned()).into()
}
