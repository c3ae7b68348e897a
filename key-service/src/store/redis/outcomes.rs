//! Answers of `scripts/ledger/`: outcomes of commands.

use redis::{RedisError, RedisResult, Value};
use shared::{
    calendar::Per,
    money::NanoUsd,
    rates::{RateBound, RateLimit, RateStatus},
    refusal::Refusal,
    time::Timestamp,
};

use super::records::{self, Reader};
use domain::ledger::{
    Command, IN_FLIGHT, Level, NewHold, Outcome, Rate, Refused, allowed_models, rate_limited, tightest,
};

/// Flags of the rates of a level.
const REQUESTS: u8 = 1;
const TOKENS: u8 = 2;

/// Decodes an outcome: a number, a settlement, or a word, which what the domain computes with may follow.
pub(super) fn outcome(
    command: &Command,
    answer: &Value,
    now: Timestamp,
) -> RedisResult<Result<Outcome, Refused>> {
    let read = match answer {
        Value::Int(number) => {
            amount_outcome(command, NanoUsd::from_nanos(*number), RateStatus::default()).map(Ok)
        }
        Value::BulkString(text) if matches!(text.first(), Some(b'S' | b's')) => {
            settled_outcome(command, text).map(Ok)
        }
        Value::BulkString(text) => {
            let mut parts = text.splitn(2, |byte| *byte == b' ');
            let (word, rest) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            std::str::from_utf8(word).ok().and_then(|word| word_outcome(command, word, rest, now))
        }
        _ => None,
    };
    read.ok_or_else(|| senseless(&format!("{answer:?}")))
}

/// Error of an answer that the script does not give.
pub(super) fn senseless(answer: &str) -> RedisError {
    (redis::ErrorKind::UnexpectedReturnType, "the ledger's script answered", answer.to_owned()).into()
}

fn amount_outcome(command: &Command, amount: NanoUsd, rates: RateStatus) -> Option<Outcome> {
    match command {
        Command::Deposit { .. } => Some(Outcome::Deposited(amount)),
        Command::Tick { .. } => Some(Outcome::Ticked(u64::try_from(amount.nanos()).ok()?)),
        Command::Hold(_) => Some(Outcome::Held { amount, rates }),
        Command::Extend { .. } => Some(Outcome::Extended { amount, revoked_by: None }),
        Command::Check { .. }
        | Command::Capture { .. }
        | Command::Release { .. }
        | Command::Expire { .. } => None,
    }
}

fn settled_outcome(command: &Command, record: &[u8]) -> Option<Outcome> {
    let settlement = records::read_settlement(&mut Reader(record))?.settlement;
    match command {
        Command::Capture { .. } => Some(Outcome::Captured(settlement)),
        Command::Expire { .. } => Some(Outcome::Expired(settlement)),
        Command::Deposit { .. }
        | Command::Tick { .. }
        | Command::Check { .. }
        | Command::Hold(_)
        | Command::Extend { .. }
        | Command::Release { .. } => None,
    }
}

fn word_outcome(
    command: &Command,
    word: &str,
    rest: &[u8],
    now: Timestamp,
) -> Option<Result<Outcome, Refused>> {
    let prompt = match command {
        Command::Hold(NewHold { prompt_tokens, .. }) => *prompt_tokens,
        Command::Deposit { .. }
        | Command::Tick { .. }
        | Command::Check { .. }
        | Command::Extend { .. }
        | Command::Capture { .. }
        | Command::Release { .. }
        | Command::Expire { .. } => 0,
    };
    Some(match (word, rest) {
        ("allowed", lists) => Ok(Outcome::Allowed { models: models(lists)? }),
        ("released", []) => Ok(Outcome::Released),
        ("not_due", []) => Ok(Outcome::NotDue),
        ("gone", []) => Ok(Outcome::Gone),
        ("held", rest) => {
            let mut reader = Reader(rest);
            let amount = reader.money()?;
            Ok(amount_outcome(command, amount, rates(reader, now)?)?)
        }
        ("revoked", []) => Err(Refused::Revoked),
        ("revoked", amount) => {
            Ok(Outcome::Extended { amount: written(amount)?, revoked_by: Some(Refusal::InvalidApiKey) })
        }
        ("archived", amount) => {
            Ok(Outcome::Extended { amount: written(amount)?, revoked_by: Some(Refusal::GroupArchived) })
        }
        ("unknown_key", []) => Err(Refused::UnknownKey),
        ("key_expired", []) => Err(Refused::KeyExpired),
        ("group_archived", []) => Err(Refused::GroupArchived),
        ("limit_reached", rest) => Err(limit_reached(rest)?),
        ("credit_empty", []) => Err(Refused::CreditEmpty),
        ("reserved", []) => Err(Refused::Reserved),
        ("model_not_allowed", lists) => Err(Refused::ModelNotAllowed { models: models(lists)?? }),
        ("in_flight", []) => Err(IN_FLIGHT),
        ("requests_limited", rates) => Err(limited(RateBound::Requests, rates, 1, now)?),
        ("tokens_limited", rates) => Err(limited(RateBound::Tokens, rates, prompt, now)?),
        ("bad_deposit", []) => Err(Refused::BadDeposit),
        ("deposit_differs", earlier) => Err(Refused::DepositDiffers { earlier: written(earlier)? }),
        ("damaged", []) => Err(Refused::Damaged),
        _ => return None,
    })
}

/// Reads the level, and the windows that are used up: none where the lifetime limit is. A key without windows has no
/// level in front.
fn limit_reached(rest: &[u8]) -> Option<Refused> {
    let mut reader = Reader(rest);
    let level = match reader.take(1) {
        None | Some(b"1") => Level::Key,
        Some(b"2") => Level::Group,
        Some(b"3") => Level::Parent,
        Some(_) => return None,
    };
    let mut resets_at = None;
    while !reader.0.is_empty() {
        let [per] = reader.bytes()?;
        let per = Per::ALL.get(usize::from(per))?;
        resets_at = resets_at.max(Some(per.end(reader.time()?)));
    }
    Some(Refused::LimitReached { level, resets_at })
}

fn written(amount: &[u8]) -> Option<NanoUsd> {
    std::str::from_utf8(amount).ok()?.parse().ok().map(NanoUsd::from_nanos)
}

/// Reads the lists of models of all levels, and what they all allow; `Some(None)` without a list.
#[expect(clippy::option_option, reason = "the outer option is an answer that cannot be read")]
fn models(rest: &[u8]) -> Option<Option<Vec<String>>> {
    let (mut reader, mut lists) = (Reader(rest), Vec::new());
    while !reader.0.is_empty() {
        lists.push(reader.models()?);
    }
    Some((!lists.is_empty()).then(|| allowed_models(&lists)))
}

/// Reads the rates of all levels, of which at least one is too low for this many requests or tokens.
fn limited(bound: RateBound, rest: &[u8], count: u64, now: Timestamp) -> Option<Refused> {
    let (mut reader, mut rates) = (Reader(rest), Vec::new());
    while !reader.0.is_empty() {
        rates.push(reader.rate()?);
    }
    rate_limited(bound, rates.into_iter(), count, now)
}

/// Reads the rates of all levels.
fn rates(mut reader: Reader<'_>, now: Timestamp) -> Option<RateStatus> {
    let (mut requests, mut tokens): (Vec<Rate>, Vec<Rate>) = (Vec::new(), Vec::new());
    while !reader.0.is_empty() {
        let [flags] = reader.bytes()?;
        for (flag, rates) in [(REQUESTS, &mut requests), (TOKENS, &mut tokens)] {
            if flags & flag != 0 {
                rates.push(reader.rate()?);
            }
        }
    }
    let status = |rates: Vec<Rate>| -> Option<RateLimit> { tightest(rates.into_iter(), now) };
    Some(RateStatus { requests: status(requests), tokens: status(tokens) })
}
