//! Arguments and answers of `scripts/ledger/`: a batch of commands to an account.

use std::collections::HashMap;

use quick_cache::sync::Cache;
use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use shared::{
    calendar::Per,
    ids::{AccountId, DepositId, GenerationId, KeyId},
    money::NanoUsd,
    time::Timestamp,
    tokens::Usage,
};

use super::{
    client::Client,
    key_space::KeySpace,
    outcomes::{outcome, senseless},
    records::{self, FUNDS, amount, double},
    script::{Arguments, LedgerScripts},
};
use crate::store::{EventBounds, Outcomes};
use domain::{
    ledger::{self, Command, Ending, Outcome, Payer, Progress, RecordId, Refused},
    usage::{COUNTED, COUNTED_PER_REQUEST, Day},
};

/// Commands per run of the script, each of which blocks Redis for some 3 µs. Longer batches are split.
const BATCH: usize = 512;
/// Seconds of a day.
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// Milliseconds of an hour: a hash of settled generations is kept for each hour in which generations began.
const HOUR: i64 = 60 * 60 * 1000;
/// Milliseconds of a day: a hash of expired generations is kept for each day.
const DAY: i64 = 24 * HOUR;
/// Bytes of an encoded command in a batch with chains.
const COMMAND_SIZE: usize = 49;
/// Error of the script without chains at a record of a chain (`scripts/constants.lua`).
const NEEDS_CHAINS: &str = "a record needs chains";
/// Number of accounts that this process remembers to have chains; others are tried without first.
const REMEMBERED: usize = 65_536;
/// Largest lease in ticks: exact as a double, and longer than any machine runs.
const MOST_TICKS: u64 = 1 << 48;

/// Retention of bills.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub(super) journal_entries: u32,
    pub(super) usage_days: u32,
    /// Bounds of the events of an account.
    pub(super) events: EventBounds,
}

/// Accounts in which a key, a hold or a settlement has a group, bounds, or further parts of a bill.
pub(super) struct ChainedAccounts(Cache<AccountId, ()>);

impl Default for ChainedAccounts {
    fn default() -> Self {
        Self(Cache::new(REMEMBERED))
    }
}

/// Client, scripts, and settings of a batch.
pub(super) struct Batch<'a> {
    pub(super) client: &'a Client,
    pub(super) ledger: &'a LedgerScripts,
    pub(super) chained: &'a ChainedAccounts,
    pub(super) key_space: &'a KeySpace,
    pub(super) kept: Kept,
    /// Bounds of events, as scripts read them.
    pub(super) event_bounds: Vec<u8>,
    pub(super) account: AccountId,
    pub(super) now: Timestamp,
}

impl Batch<'_> {
    /// Applies the commands in order. If the script fails on a batch, each command is tried alone, so that an
    /// unreadable record affects only commands on this record.
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

    /// Runs the script without chains of budgets where none are known, and that with chains if any turn up.
    async fn run(&self, commands: &[Command]) -> RedisResult<Outcomes> {
        let ChainedAccounts(chained) = self.chained;
        if !commands.iter().any(has_further_parts) && chained.get(&self.account).is_none() {
            match self.run_script(commands, false).await {
                Err(e) if needs_chains(&e) => chained.insert(self.account, ()),
                outcomes => return outcomes,
            }
        }
        self.run_script(commands, true).await
    }

    async fn run_script(&self, commands: &[Command], has_chains: bool) -> RedisResult<Outcomes> {
        let script = if has_chains { &self.ledger.chains } else { &self.ledger.plain };
        let arguments = self.arguments(commands, has_chains);
        let answer: Option<Vec<Value>> = self.client.run(script, &arguments).await?;
        // No answer means that the account does not exist.
        let Some(answers) = answer else { return Ok(vec![Err(Refused::UnknownKey); commands.len()]) };
        if answers.len() != commands.len() {
            return Err(senseless("too few outcomes"));
        }
        let outcomes =
            commands.iter().zip(&answers).map(|(command, answer)| outcome(command, answer, self.now));
        outcomes.collect()
    }

    async fn run_alone(&self, command: &Command) -> RedisResult<Result<Outcome, Refused>> {
        match self.run(std::slice::from_ref(command)).await {
            Err(e) if gave_up(&e) => Ok(Err(Refused::Damaged)),
            outcomes => outcomes?.pop().ok_or_else(|| senseless("no outcome")),
        }
    }

    fn arguments(&self, commands: &[Command], has_chains: bool) -> Arguments {
        let Self { now, kept, .. } = self;
        let generations = Generations::of(commands);
        let (mut arguments, places) = self.names(commands, &generations, has_chains);
        let mut writer = BatchEncoder::new(&generations, has_chains);
        for command in commands {
            writer.command(command);
        }
        let counts = [
            generations.to_be_held,
            generations.alike,
            generations.ids.len(),
            writer.deposits.len(),
            writer.keys.all.len(),
        ];
        // Counters of a day are kept for `usage_days` after that day.
        let counters_kept = SECONDS_PER_DAY * (i64::from(kept.usage_days) + 1);
        let hour = generations.ids.first().map_or(0, |id| id.created_at().millis().div_euclid(HOUR));
        let mut settings = Vec::with_capacity(12 * 8 + 6 * 2 + 8);
        for number in [now.millis(), kept.journal_entries.into(), counters_kept, hour] {
            settings.extend(double(number));
        }
        for count in counts {
            settings.extend(place(count));
        }
        settings.extend(&self.event_bounds);
        if has_chains {
            settings.extend(place(writer.payers.all.len()));
            settings.extend(Per::ALL.iter().flat_map(|per| double(per.beginning(*now).millis())));
        }
        settings.extend(writer.names.all);
        arguments.value(settings);
        arguments.value(places);
        arguments.value(writer.commands);
        arguments.value(writer.bills);
        for id in &generations.ids {
            arguments.value(*id.as_bytes());
        }
        for id in writer.deposits {
            arguments.value(*id.as_bytes());
        }
        for event in commands.iter().filter_map(|command| ledger::deposited(command, *now)) {
            arguments.value([event.id.as_bytes(), event.to_json().as_bytes()].concat());
        }
        for note in commands.iter().filter_map(|command| note(command, *now)) {
            arguments.value(note);
        }
        arguments.value(FUNDS);
        for id in writer.keys.all {
            arguments.value(*id.as_bytes());
        }
        for (key, model) in writer.payers.all {
            arguments.value(records::write_payer(&Payer::alone(key, model.to_owned())));
        }
        for parts in writer.further_parts {
            arguments.value(parts);
        }
        if !writer.credentials.all.is_empty() {
            let numbers = writer.credentials.all.into_iter().map(u64::cast_signed);
            arguments.value(numbers.flat_map(double).collect::<Vec<u8>>());
        }
        arguments
    }

    /// Arguments with the names of the script's keys, and the places of the generations' hashes among these names.
    fn names(
        &self,
        commands: &[Command],
        generations: &Generations,
        has_chains: bool,
    ) -> (Arguments, Vec<u8>) {
        let Self { key_space, account, now, .. } = self;
        let today = Day::of(*now);
        let mut arguments = Arguments::keys([
            key_space.account(*account),
            key_space.holds(*account),
            key_space.journal(*account),
            key_space.deposits(*account),
            key_space.counters(*account, today),
        ]);
        let places = generations.places(&mut arguments, key_space, *account);
        if commands.iter().any(settles) {
            if has_chains {
                arguments.key(key_space.group_spend(*account, today));
            }
            arguments.key(key_space.spenders(*account));
            arguments.key(key_space.spend(*account, today));
        }
        for name in key_space.all_events(*account) {
            arguments.key(name);
        }
        (arguments, places)
    }
}

/// The note of a deposit, with the payment.
fn note(command: &Command, now: Timestamp) -> Option<String> {
    let Command::Deposit { note, payment_id, .. } = command else { return None };
    Some(records::write_note(note, payment_id.as_ref(), now))
}

/// Returns true for commands that may bill something.
fn settles(command: &Command) -> bool {
    matches!(command, Command::Capture { .. } | Command::Expire { .. })
}

/// Returns whether a command reports a cost to the operator, or details of usage.
fn has_further_parts(command: &Command) -> bool {
    match command {
        Command::Extend { progress, .. } | Command::Capture { total: progress, .. } => {
            progress.upstream_cost.is_some() || !progress.usage.details.is_empty()
        }
        Command::Deposit { .. }
        | Command::Tick { .. }
        | Command::Check { .. }
        | Command::Hold(_)
        | Command::Release { .. }
        | Command::Expire { .. } => false,
    }
}

/// Distinct generations of a batch: first the generations to be held that begin in the same hour, as nearly all do,
/// then others of that hour, then the rest.
struct Generations {
    ids: Vec<GenerationId>,
    numbers: HashMap<GenerationId, usize>,
    to_be_held: usize,
    alike: usize,
}

impl Generations {
    fn of(commands: &[Command]) -> Self {
        let hour = |id: GenerationId| id.created_at().millis().div_euclid(HOUR);
        let mut first = None;
        let mut ids = Vec::with_capacity(commands.len());
        let named = |command: &Command| match command.record() {
            Some(RecordId::Generation(id)) => Some((matches!(command, Command::Hold(_)), id)),
            Some(RecordId::Deposit(_)) | None => None,
        };
        for (is_hold, id) in commands.iter().filter_map(named) {
            let first = *first.get_or_insert_with(|| hour(id));
            ids.push((hour(id) != first, !is_hold, id));
        }
        ids.sort_by_key(|(differs, later, _)| (*differs, *later));
        let mut generations =
            Self { ids: Vec::with_capacity(ids.len()), numbers: HashMap::new(), to_be_held: 0, alike: 0 };
        for (differs, later, id) in ids {
            if generations.numbers.contains_key(&id) {
                continue;
            }
            generations.ids.push(id);
            generations.numbers.insert(id, generations.ids.len());
            generations.to_be_held += usize::from(!differs && !later);
            generations.alike += usize::from(!differs);
        }
        generations
    }

    /// Number of a generation, counted from 1.
    fn number(&self, id: GenerationId) -> usize {
        self.numbers.get(&id).copied().unwrap_or(0)
    }

    /// Adds the hashes of settled and of expired generations to the names of keys, beginning with the first
    /// generation's. Returns for each generation the indices of both hashes among all names.
    fn places(&self, arguments: &mut Arguments, key_space: &KeySpace, account: AccountId) -> Vec<u8> {
        let (mut hours, mut days, mut places) = (HashMap::new(), HashMap::new(), Vec::new());
        for id in &self.ids {
            let created_at = id.created_at().millis();
            let (hour, day) = (created_at.div_euclid(HOUR), created_at.div_euclid(DAY));
            let settled =
                *hours.entry(hour).or_insert_with(|| arguments.key(key_space.settled(account, hour)));
            let expired = *days.entry(day).or_insert_with(|| arguments.key(key_space.expired(account, day)));
            places.extend(place(settled));
            places.extend(place(expired));
        }
        places
    }
}

/// Distinct values, in the order of first occurrence.
struct Named<T> {
    all: Vec<T>,
}

impl<T: PartialEq> Named<T> {
    /// Index of a value, counted from 1.
    fn place(&mut self, thing: T) -> usize {
        let known = self.all.iter().position(|known| *known == thing);
        1 + known.unwrap_or_else(|| {
            self.all.push(thing);
            self.all.len() - 1
        })
    }
}

/// Encoder of the commands, and of everything that the commands refer to.
struct BatchEncoder<'a> {
    generations: &'a Generations,
    has_chains: bool,
    commands: Vec<u8>,
    /// The names of the commands.
    names: Named<u8>,
    bills: Vec<u8>,
    /// Of each bill with a flag, the flagged parts.
    further_parts: Vec<Vec<u8>>,
    deposits: Vec<DepositId>,
    keys: Named<KeyId>,
    payers: Named<(KeyId, &'a str)>,
    /// Numbers of credentials that are no key's first.
    credentials: Named<u64>,
}

impl<'a> BatchEncoder<'a> {
    fn new(generations: &'a Generations, has_chains: bool) -> Self {
        let (keys, payers) = (Named { all: Vec::new() }, Named { all: Vec::new() });
        let (commands, bills) = (Vec::with_capacity(generations.ids.len() * COMMAND_SIZE), Vec::new());
        let names = Named { all: Vec::new() };
        let (deposits, further_parts, credentials) = (Vec::new(), Vec::new(), Named { all: Vec::new() });
        Self {
            generations,
            has_chains,
            commands,
            names,
            bills,
            further_parts,
            deposits,
            keys,
            payers,
            credentials,
        }
    }

    fn command(&mut self, command: &'a Command) {
        let money = |n: NanoUsd| amount(n);
        let ticks = |ticks: u64| ticks.min(MOST_TICKS).cast_signed();
        let key = command.key().map_or(0, |key| self.keys.place(key));
        let generation = match command.record() {
            Some(RecordId::Generation(id)) => self.generations.number(id),
            Some(RecordId::Deposit(id)) => {
                self.deposits.push(id);
                self.generations.ids.len() + self.deposits.len()
            }
            None => 0,
        };
        // A hold and a check have a credential in place of a bill.
        let (name, payer, bill, numbers) = match command {
            Command::Check { credential, .. } => (1, 0, self.credential(*credential), [0; 5]),
            Command::Hold(hold) => {
                // Below zero, the request is readmitted.
                let prompt = exact(hold.prompt_tokens);
                let prompt = if hold.readmitted { -1 - prompt } else { prompt };
                let (least, enough, most) = (money(hold.least), money(hold.enough), money(hold.most));
                let numbers = [least, enough, most, ticks(hold.lease_ticks), prompt];
                (2, self.payers.place((hold.key, &hold.model)), self.credential(hold.credential), numbers)
            }
            Command::Extend { most, progress, lease_ticks, .. } => {
                let bill = self.bill(*progress, Ending::Expired, true);
                let used = rated(progress.usage);
                (3, 0, bill, [money(*most), money(progress.cost), ticks(*lease_ticks), 0, used])
            }
            Command::Capture { key, model, total, chargeable, estimated, .. } => {
                let bill = self.bill(*total, Ending::Captured, *estimated);
                let [prompt, cached, completion] = counted(total.usage);
                let payer = self.payers.place((*key, model));
                let chargeable = chargeable.map_or(total.cost, |most| most.min(total.cost));
                (4, payer, bill, [money(chargeable), prompt, cached, completion, rated(total.usage)])
            }
            Command::Release { .. } => (5, 0, 0, [0; 5]),
            Command::Expire { .. } => (6, 0, 0, [0; 5]),
            Command::Deposit { amount, .. } => (7, 0, 0, [money(*amount), 0, 0, 0, 0]),
            Command::Tick { seen } => (8, 0, 0, [seen.map_or(-1, ticks), 0, 0, 0, 0]),
        };
        self.commands.push(name);
        self.names.place(name);
        for number in [key, generation, payer, bill] {
            self.commands.extend(place(number));
        }
        // Only chains have rates, which count the tokens of the fifth number.
        for number in &numbers[..if self.has_chains { 5 } else { 4 }] {
            self.commands.extend(double(*number));
        }
    }

    /// Index of a credential's number; 0 for a key's first.
    fn credential(&mut self, number: u64) -> usize {
        if number == 0 { 0 } else { self.credentials.place(number) }
    }

    /// Adds a bill and returns the index of the bill.
    fn bill(&mut self, progress: Progress, ending: Ending, estimated: bool) -> usize {
        self.bills.extend(records::write_bill(progress, ending, estimated));
        self.further_parts.extend(Some(records::further_parts(&progress)).filter(|parts| !parts.is_empty()));
        self.bills.len() / records::BILL_SIZE
    }
}

/// The tokens that a capture adds to the counters.
fn counted(Usage { prompt, cached, completion, .. }: Usage) -> [i64; 3] {
    [prompt, cached, completion].map(|tokens| tokens.min(COUNTED_PER_REQUEST).cast_signed())
}

/// The tokens that a report counts for rates.
fn rated(Usage { prompt, completion, .. }: Usage) -> i64 {
    exact(prompt.saturating_add(completion))
}

/// A number of tokens, at most the largest that is exact as a double.
fn exact(tokens: u64) -> i64 {
    tokens.min(COUNTED).cast_signed()
}

/// Encodes an index. A batch has at most a few values for each command.
fn place(place: usize) -> [u8; 2] {
    u16::try_from(place).unwrap_or(u16::MAX).to_be_bytes()
}

/// Returns whether the script stopped at an unreadable record, before any change. Other errors of a server (out of
/// memory, no longer a master) are not caused by the commands.
fn gave_up(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ResponseError)
        && error.detail().is_some_and(|detail| detail.contains("user_script"))
}

/// Returns whether the script found that it needs chains, before any change.
fn needs_chains(error: &RedisError) -> bool {
    gave_up(error) && error.detail().is_some_and(|detail| detail.contains(NEEDS_CHAINS))
}
