//! Commands on their way into `scripts/ledger.lua`, and its outcomes on their way back.

use redis::{RedisError, RedisResult};
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
    domain::ledger::{Command, Ending, Outcome, Progress, RecordId, Refused, Settlement},
    store::Outcomes,
};

/// Commands that one run of the script takes; it holds up all of Redis for some 7 µs each. Longer batches are cut.
const BATCH: usize = 512;
/// Fields of a command beside its name, its key and its record.
const FIELDS: usize = 5;

/// Applies the commands in their order. A batch that fails as a whole is tried again command by command, so that what
/// Redis cannot digest spoils nothing for those that came along with it.
pub(super) async fn execute(
    link: &Link,
    ledger: &Lua,
    names: &Names,
    journal_entries: u32,
    account: AccountId,
    commands: &[Command],
    now: Timestamp,
) -> RedisResult<Outcomes> {
    let run = async |commands: &[Command]| {
        let arguments = arguments(names, journal_entries, account, commands, now);
        outcomes(link.run(ledger, &arguments).await?, commands.len())
    };
    let mut all = Vec::with_capacity(commands.len());
    for batch in commands.chunks(BATCH) {
        match run(batch).await {
            Ok(outcomes) => all.extend(outcomes),
            Err(e) if batch.len() == 1 || e.is_io_error() => return Err(e),
            Err(e) => {
                tracing::warn!(error = %e, %account, "a batch failed; trying its commands one by one");
                let mut failed = None;
                for command in batch {
                    match run(std::slice::from_ref(command)).await {
                        Ok(outcomes) => all.extend(outcomes),
                        Err(e) => failed = Some(e),
                    }
                }
                failed.map_or(Ok(()), Err)?;
            }
        }
    }
    Ok(all)
}

fn arguments(
    names: &Names,
    journal_entries: u32,
    account: AccountId,
    commands: &[Command],
    now: Timestamp,
) -> Arguments {
    let mut arguments = Arguments::keys([
        names.account(account),
        names.records(account),
        names.leases(account),
        names.journal(account),
        names.archive(account),
    ]);
    let mut keys: Vec<KeyId> = Vec::new();
    arguments.value(now.millis().to_string());
    arguments.value(journal_entries.to_string());
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
