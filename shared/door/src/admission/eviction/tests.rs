use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::admission::Network;

/// Connections by network; each network is a number.
#[derive(Clone, Debug, Default)]
struct Sample(BTreeMap<u8, Vec<Snapshot>>);

fn owner(machine: u8) -> Owner {
    Owner::Network(Network::of(IpAddr::from([192, 0, 2, machine])))
}

impl Sample {
    fn of_machines(machines: impl IntoIterator<Item = u8>) -> Self {
        let mut sample = Self::default();
        for (number, machine) in (0..).zip(machines) {
            let snapshot = Snapshot { number, idle: None, read: true, load: 1 };
            sample.0.entry(machine).or_default().push(snapshot);
        }
        sample
    }

    fn remove(&mut self, number: u64) {
        for connections in self.0.values_mut() {
            connections.retain(|it| it.number != number);
        }
        self.0.retain(|_, connections| !connections.is_empty());
    }

    fn all(&self) -> impl Iterator<Item = (Owner, Snapshot)> {
        self.0.iter().flat_map(|(machine, all)| all.iter().map(|it| (owner(*machine), *it)))
    }

    fn load_of(&self, of: Owner, but: &HashSet<u64>) -> usize {
        self.all()
            .filter(|(it, snapshot)| *it == of && !but.contains(&snapshot.number))
            .map(|(_, it)| it.load)
            .sum()
    }
}

impl Connections for Sample {
    fn owners(&self) -> impl Iterator<Item = (Owner, usize, u64)> {
        self.0.iter().map(|(machine, all)| (owner(*machine), all.len(), all[0].number))
    }

    fn of(&self, of: Owner) -> impl Iterator<Item = Snapshot> {
        let all = self.0.iter().filter(move |(machine, _)| owner(**machine) == of);
        all.flat_map(|(_, connections)| connections.iter().copied())
    }
}

fn sample() -> impl Strategy<Value = Sample> {
    let connection = (0..6_u8, proptest::option::of(0..3_000_u64), any::<bool>(), 0..9_usize);
    vec(connection, 1..60).prop_map(|connections| {
        let mut sample = Sample::default();
        for (number, (machine, idle, read, load)) in (0..).zip(connections) {
            let idle = idle.map(Duration::from_millis);
            sample.0.entry(machine).or_default().push(Snapshot { number, idle, read, load });
        }
        sample
    })
}

proptest! {
    #[test]
    fn a_place_comes_from_an_owner_with_the_most_and_from_a_silent_connection_if_it_has_one(sample in sample()) {
        let chosen = choose(&sample, PassedBound::Connections);
        prop_assert_eq!(chosen.len(), 1);
        let (from, number) = chosen[0];
        let of_owner: Vec<_> = sample.of(from).collect();
        let most = sample.owners().map(|(_, count, _)| count).max().unwrap();
        prop_assert_eq!(of_owner.len().max(FEW), most.max(FEW));
        let silent = |it: &&Snapshot| it.read && it.idle.is_some_and(|idle| idle >= HESITATION);
        let expected = of_owner.iter().find(silent).unwrap_or(&of_owner[0]);
        prop_assert_eq!(number, expected.number);
    }

    #[test]
    fn a_busy_connection_never_gives_its_place_to_an_authenticated_one(sample in sample()) {
        let chosen = choose(&sample, PassedBound::IdleConnections);
        let idle: Vec<_> = sample.all().filter(|(_, it)| it.idle.is_some()).collect();
        prop_assert_eq!(chosen.is_empty(), idle.is_empty());
        for (from, number) in chosen {
            let count = |of: Owner| sample.of(of).count();
            let (_, it) = idle.iter().find(|(_, it)| it.number == number).unwrap();
            prop_assert!(idle.iter().all(|(other, _)| count(*other) <= count(from)));
            prop_assert!(sample.of(from).all(|other| other.idle <= it.idle));
        }
    }

    #[test]
    fn relief_takes_as_much_as_is_needed_and_always_from_the_owner_with_the_most(sample in sample(), excess in 0..200_usize) {
        let chosen = choose(&sample, PassedBound::Load(excess));
        let (mut closed, mut relieved) = (HashSet::new(), 0);
        for (from, number) in &chosen {
            prop_assert!(relieved < excess, "no connection more than needed");
            let load = sample.load_of(*from, &closed);
            prop_assert!(sample.owners().all(|(other, ..)| sample.load_of(other, &closed) <= load));
            closed.insert(*number);
            relieved += sample.of(*from).find(|it| it.number == *number).unwrap().load;
        }
        let all: usize = sample.all().map(|(_, it)| it.load).sum();
        prop_assert!(relieved >= excess.min(all));
    }
}

#[test]
fn a_few_connections_of_one_owner_yield_by_age_to_many_owners_with_one() {
    let few = u64::try_from(FEW).unwrap();
    let machines = (10..20).chain((0..FEW).map(|_| 1)).chain(20..30);
    let mut sample = Sample::of_machines(machines.clone());
    for oldest in 0..10 {
        assert_eq!(
            choose(&sample, PassedBound::Connections),
            [(owner(10 + u8::try_from(oldest).unwrap()), oldest)]
        );
        sample.remove(oldest);
    }
    // An owner with more than a few connections loses one.
    let sample = Sample::of_machines(machines.chain((0..=FEW).map(|_| 2)));
    assert_eq!(choose(&sample, PassedBound::Connections), [(owner(2), 20 + few)]);
}
