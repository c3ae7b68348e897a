//! Two key-services count the lease time of a hold that nobody renews. Each polls the ledger with the real
//! [`LeaseClock`] and advances the tick with the real command.
//!
//! Time passes in seconds. In each second, the store answers one key-service, both (in either order or interleaved), or
//! none.

use std::time::Duration;

use domain::{
    lease_clock::{LEASE_TICKS, LONGEST_GAP, LeaseClock, quantum},
    ledger::{
        Account, Command, Key, NewHold, Outcome, Record, State, apply,
        histories::{generation, key, new_hold},
    },
};
use shared::{money::NanoUsd, time::Timestamp};

use crate::explorer::{Model, explore_at_least};

/// Length of a lease in seconds: short, and each quantum longer than the longest gap.
const LEASE: u64 = 18;
const NOW: Timestamp = Timestamp::from_millis(1_795_219_199_500);

struct Leases;

#[derive(Clone)]
struct Counted {
    second: u64,
    ledger: State,
    services: [Looking; 2],
    /// Second in which the store last answered any key-service.
    answered_at: Option<u64>,
    /// Number of seconds since the hold was opened during which the ledger answered without too long a gap.
    answered: u64,
}

/// A key-service that looks at the ledger.
#[derive(Clone, Copy, Default)]
struct Looking {
    clock: LeaseClock,
    /// Tick and second of the last answer.
    seen: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
enum Second {
    /// A hold is opened.
    Opens,
    /// The store answers nobody.
    Silence,
    Answers(usize),
    AnswersBoth {
        first: usize,
    },
    /// Both ask for the tick before one of them advances it.
    AnswersTogether,
}

impl Model for Leases {
    type State = Counted;
    type Action = Second;

    fn start(&self) -> Counted {
        let account = Account { credit: NanoUsd::from_nanos(100), ..Account::default() };
        let ledger = State { account, key: Some(Key::default()), ..State::default() };
        Counted { second: 0, ledger, services: [Looking::default(); 2], answered_at: None, answered: 0 }
    }

    fn actions(&self, state: &Counted) -> Vec<Second> {
        let open = match state.ledger.record {
            Record::None => Some(Second::Opens),
            Record::Open(_) => None,
            Record::Closed(_) | Record::Deposited(_) => return Vec::new(),
        };
        let [one, other] = [0, 1].map(|first| Second::AnswersBoth { first });
        let answers = [Second::Answers(0), Second::Answers(1), one, other, Second::AnswersTogether];
        open.into_iter().chain(answers).chain([Second::Silence]).collect()
    }

    fn take(&self, state: &Counted, action: Second) -> Result<Counted, String> {
        let mut next = state.clone();
        match action {
            Second::Opens => {
                next.run(&hold())?;
                return Ok(next);
            }
            Second::Silence => next.second += 1,
            Second::Answers(service) => {
                next.second += 1;
                next.look(service)?;
            }
            Second::AnswersBoth { first } => {
                next.second += 1;
                next.look(first)?;
                next.look(1 - first)?;
            }
            Second::AnswersTogether => {
                next.second += 1;
                (0..2).try_for_each(|service| next.ask(service))?;
                (0..2).try_for_each(|service| next.advance(service))?;
            }
        }
        Ok(next)
    }

    fn is_optional(&self, action: Second) -> bool {
        matches!(action, Second::Silence)
    }

    fn rest(&self, _: &Counted) -> Result<(), String> {
        Ok(())
    }

    fn sketch(&self, state: &Counted) -> Vec<u8> {
        let Counted { second, ledger, services, answered_at, answered } = state;
        let longest = LONGEST_GAP.as_secs() + 1;
        let age = |at: u64, most: u64| (second - at).min(most);
        let tick = ledger.account.tick;
        let mut ages = vec![*answered, answered_at.map_or(longest, |at| age(at, longest))];
        ages.push(match &ledger.record {
            Record::None => 100,
            Record::Open(hold) => hold.lease_until - tick,
            Record::Closed(_) | Record::Deposited(_) => 101,
        });
        let mut of_services = services.map(|Looking { clock, seen }| {
            let since = clock.next(QUANTUM).map(|next| next.saturating_sub(QUANTUM).as_secs());
            let [since, last] =
                [since, seen.map(|(_, at)| at)].map(|at| at.map_or(99, |at| age(at, 2 * LEASE)));
            // A longer gap does not count, whatever its length.
            [
                seen.map_or(2, |(seen, _)| tick.abs_diff(seen).min(1)),
                since.min(longest + LEASE),
                last.min(longest),
            ]
        });
        of_services.sort_unstable();
        ages.extend(of_services.concat());
        ages.iter().map(|age| u8::try_from(*age).expect("small numbers")).collect()
    }
}

const QUANTUM: Duration = Duration::from_secs(LEASE / 6);

fn hold() -> Command {
    let new = new_hold(key(0), generation(0), NanoUsd::from_nanos(1));
    Command::Hold(NewHold { lease_ticks: LEASE_TICKS, ..new })
}

impl Counted {
    fn run(&mut self, command: &Command) -> Result<Outcome, String> {
        let applied = apply(self.ledger.clone(), command, NOW);
        let (ledger, outcome) =
            applied.map_err(|refused| format!("{command:?} is not refused: {refused:?}"))?;
        self.ledger = ledger;
        Ok(outcome)
    }

    fn look(&mut self, service: usize) -> Result<(), String> {
        self.ask(service)?;
        self.advance(service)
    }

    /// Lets a key-service ask for the tick.
    fn ask(&mut self, service: usize) -> Result<(), String> {
        let is_open = matches!(self.ledger.record, Record::Open(_));
        let gap = self.answered_at.map(|at| self.second - at).filter(|gap| *gap <= LONGEST_GAP.as_secs());
        self.answered = if is_open { (self.answered + gap.unwrap_or(0)).min(LEASE) } else { 0 };
        self.answered_at = Some(self.second);
        self.tick(service, None)
    }

    /// Advances the tick if that is due, and then tries to expire the hold.
    fn advance(&mut self, service: usize) -> Result<(), String> {
        if let Some(seen) = self.services[service].clock.due(QUANTUM) {
            self.tick(service, Some(seen))?;
        }
        if !matches!(self.ledger.record, Record::Open(_)) {
            return Ok(());
        }
        let outcome = self.run(&Command::Expire { key: key(0), generation: generation(0) })?;
        let has_expired = matches!(outcome, Outcome::Expired(_));
        if has_expired && self.answered < LEASE {
            return Err(format!("a lease runs only while it can be renewed, {} of {LEASE} s", self.answered));
        }
        Ok(())
    }

    fn tick(&mut self, service: usize, seen: Option<u64>) -> Result<(), String> {
        let Outcome::Ticked(tick) = self.run(&Command::Tick { seen })? else {
            return Err("a tick is answered with the tick".into());
        };
        let of = &mut self.services[service];
        of.clock.observe(tick, Duration::from_secs(self.second));
        of.seen = Some((tick, self.second));
        Ok(())
    }
}

#[test]
fn an_unrenewed_hold_lives_for_a_lease_of_time_in_which_the_ledger_answered() {
    assert_eq!(quantum(Duration::from_secs(LEASE)), QUANTUM);
    explore_at_least("a lease, two key-services", &Leases, 50_000);
}
