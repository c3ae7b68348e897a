//! Compares the caps at every level with what was billed and with what the upstream generated.

use std::collections::HashMap;

use shared::money::NanoUsd;

use super::{
    books::{Line, Round, balances},
    population::{Group, Key},
    report::Found,
};

/// Sums of the requests that a cap limits, in nano-USD.
#[derive(Clone, Copy, Default)]
struct Below {
    generated: i64,
    charged: i64,
    /// The part that was generated and was correctly not billed: recorded shortfall, and the rest of answers that were
    /// cut off.
    unbilled: i64,
}

impl Below {
    fn add(&mut self, line: &Line) {
        self.generated += line.generated;
        self.charged += line.charged;
        let lacking = (line.generated - line.charged - line.shortfall).max(0);
        self.unbilled += line.shortfall + if line.is_cut { lacking } else { 0 };
    }

    fn compare(self, name: &str, cap: NanoUsd, found: &mut Found) {
        let cap = cap.nanos();
        found.sums.caps += 1;
        found.sums.used_up += u64::from(self.charged * 10 >= cap * 9);
        if self.charged > cap {
            found
                .overshoot
                .add(self.charged - cap, || format!("{name}: {} n$ billed of {cap}", self.charged));
        }
        let beyond = self.generated - cap;
        if beyond > 0 {
            found.sums.generated_beyond += beyond;
        }
        if beyond > self.unbilled {
            let amount = beyond - self.unbilled;
            found.overshoot.add(amount, || format!("{name}: {} n$ generated of {cap}", self.generated));
        }
    }
}

/// Compares the cap of every key, group, parent and account with the sums of the requests that it limits, and each
/// account's credit with its journal.
pub(super) fn compare(round: &Round<'_>, lines: &[Line], found: &mut Found) {
    let (keys, groups) = (round.population.keys.read().unwrap(), round.population.groups.read().unwrap());
    let mut of_keys = vec![Below::default(); keys.len()];
    let mut of_groups = vec![Below::default(); groups.len()];
    let mut of_tenants = vec![Below::default(); round.population.tenants.len()];
    let mut admitted: HashMap<usize, u64> = HashMap::new();
    for line in lines {
        let key = &keys[line.key];
        of_keys[line.key].add(line);
        of_tenants[key.tenant].add(line);
        let group = key.group.map(|group| (group, groups[group].parent));
        for group in group.into_iter().flat_map(|(group, parent)| [Some(group), parent]).flatten() {
            of_groups[group].add(line);
        }
        *admitted.entry(line.key).or_default() += u64::from(line.asked);
    }
    for (key, below) in keys.iter().zip(&of_keys) {
        if let Some(cap) = key.cap {
            below.compare(&key.made.id, cap, found);
        }
    }
    for (group, below) in groups.iter().zip(&of_groups) {
        let Group { id, limit, .. } = &**group;
        below.compare(id, *limit, found);
    }
    let balances = balances(round.stack);
    for (tenant, below) in round.population.tenants.iter().zip(&of_tenants) {
        let (name, paid) = (&tenant.account.name, *tenant.deposited.lock().unwrap());
        below.compare(name, paid, found);
        let (credit, held) = balances.get(name).copied().unwrap_or_default();
        if held != NanoUsd::ZERO {
            found.phantom_holds.add(held.nanos(), || format!("{name} holds {held}"));
        }
        let spent = paid.nanos() - credit.nanos();
        if spent > below.charged && has_lost(round) {
            found.sums.lost_with_masters += spent - below.charged;
        } else if spent != below.charged {
            found.unbalanced.add(spent - below.charged, || {
                format!("{name}: its credit paid {spent} n$, its journal says {} n$", below.charged)
            });
        }
    }
    for (number, key) in keys.iter().enumerate() {
        compare_rate(round, (number, key), admitted.get(&number).copied().unwrap_or_default(), found);
    }
}

/// Returns whether deposits and rate counts may be lost, because the replica that took over was one that no process had
/// waited for.
fn has_lost(round: &Round<'_>) -> bool {
    round.stage.loses() && round.happened.iter().any(|fault| fault.loses(fault.from, fault.to))
}

/// Compares the number of a key's requests that reached the upstream with its rate limit: it may send a minute's worth
/// of requests at once, and in addition as many as the rate has refilled since.
fn compare_rate(round: &Round<'_>, (number, key): (usize, &Key), admitted: u64, found: &mut Found) {
    // If key-services' clocks differ by more than a second, a rate's bucket becomes full again.
    let is_exact = round.stack.clocks.is_empty() && !has_lost(round);
    let Some(rate) = key.requests_per_minute.filter(|_| is_exact) else { return };
    let of_key: Vec<_> =
        round.sent.iter().filter(|sent| sent.key == number && !sent.after_revocation).collect();
    let first = of_key.iter().map(|sent| sent.from).min();
    let last = of_key.iter().map(|sent| sent.to).max();
    let lasted = first.zip(last).map_or(0, |(first, last)| (last - first).as_millis());
    let refilled = u64::try_from(lasted * u128::from(rate) / 60_000).expect("a round is short");
    let most = rate + refilled + 1;
    if admitted > most {
        found.overshoot.add(0, || format!("{}: {admitted} requests of {most} by its rate", key.made.id));
    }
}
