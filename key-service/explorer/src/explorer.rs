//! A breadth-first model checker. It visits every reachable state once. If a state or an action breaks a promise, it
//! returns the shortest path to it.

use std::{
    collections::{HashMap, VecDeque},
    fmt::{Debug, Write as _},
    time::Instant,
};

/// A model: states, and actions between them.
pub(crate) trait Model {
    type State;
    type Action: Copy + Debug;

    fn start(&self) -> Self::State;

    /// Lists everything that can happen in a state.
    fn actions(&self, state: &Self::State) -> Vec<Self::Action>;

    /// Returns the state after an action. If the action breaks a promise, returns the promise as an error.
    fn take(&self, state: &Self::State, action: Self::Action) -> Result<Self::State, String>;

    /// Returns whether the action is possible but need not ever happen. A state is at rest if only such actions are
    /// possible.
    fn is_optional(&self, action: Self::Action) -> bool;

    /// Checks a state at rest. If the state breaks a promise, returns the promise as an error.
    fn rest(&self, state: &Self::State) -> Result<(), String>;

    /// Returns bytes that identify a state. Two states may have the same bytes only if the same things can happen from
    /// both.
    fn sketch(&self, state: &Self::State) -> Vec<u8>;
}

/// Sizes of what an exploration has visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Explored {
    /// Number of distinct states.
    pub(crate) states: usize,
    /// Number of actions taken from all states together.
    pub(crate) steps: usize,
    /// Number of states at rest.
    pub(crate) rests: usize,
    /// Number of actions on the shortest path to the farthest state.
    pub(crate) depth: usize,
}

/// A broken promise, with the shortest path to it.
pub(crate) struct Broken {
    promise: String,
    way: Vec<String>,
}

impl Debug for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::from("\n");
        for (number, action) in self.way.iter().enumerate() {
            writeln!(text, "{:3} {action}", number + 1)?;
        }
        write!(f, "{text}    broken: {}", self.promise)
    }
}

/// How a state was first reached: from which state, by which action, and after how many actions.
struct Reached<A> {
    from: Option<(usize, A)>,
    depth: usize,
}

struct Explorer<A> {
    reached: Vec<Reached<A>>,
    numbers: HashMap<[u8; 16], usize>,
    /// For each state, the states from which an action that is not optional leads to it.
    ways_back: Vec<Vec<u32>>,
    rests: Vec<usize>,
    steps: usize,
}

/// Visits every reachable state. If a promise is broken, fails with the promise and a shortest path to where it is
/// broken.
pub(crate) fn explore<M: Model>(model: &M) -> Result<Explored, Broken> {
    let mut explorer = Explorer {
        reached: Vec::new(),
        numbers: HashMap::new(),
        ways_back: Vec::new(),
        rests: Vec::new(),
        steps: 0,
    };
    let mut frontier = VecDeque::new();
    let start = model.start();
    explorer.reach(&model.sketch(&start), None);
    frontier.push_back((0, start));
    while let Some((number, state)) = frontier.pop_front() {
        let mut is_at_rest = true;
        for action in model.actions(&state) {
            let is_optional = model.is_optional(action);
            is_at_rest &= is_optional;
            explorer.steps += 1;
            let next = model
                .take(&state, action)
                .map_err(|promise| explorer.broken(promise, number, Some(action)))?;
            let (to, is_new) = explorer.reach(&model.sketch(&next), Some((number, action)));
            if !is_optional && to != number {
                explorer.ways_back[to].push(u32::try_from(number).expect("fewer states than that"));
            }
            if is_new {
                frontier.push_back((to, next));
            }
        }
        if is_at_rest {
            explorer.rests.push(number);
            model.rest(&state).map_err(|promise| explorer.broken(promise, number, None))?;
        }
    }
    explorer.all_can_come_to_rest()?;
    Ok(explorer.explored())
}

/// Explores a model and prints the sizes. Panics if a promise is broken or there are fewer states than this.
pub(crate) fn explore_at_least<M: Model>(name: &str, model: &M, states: usize) {
    let began = Instant::now();
    let explored = explore(model).unwrap_or_else(|broken| panic!("{name}: {broken:?}"));
    println!("{name}: {explored:?} in {:.1?}", began.elapsed());
    assert!(explored.states >= states, "{name} has become too small: {explored:?}");
    assert!(explored.rests > 0, "{name} never comes to rest");
}

impl<A: Copy + Debug> Explorer<A> {
    /// Returns the number of the state with this sketch, and whether the state is new.
    fn reach(&mut self, sketch: &[u8], from: Option<(usize, A)>) -> (usize, bool) {
        let mut name = [0; 16];
        name.copy_from_slice(&blake3::hash(sketch).as_bytes()[..16]);
        let next = self.reached.len();
        let number = *self.numbers.entry(name).or_insert(next);
        if number == next {
            let depth = from.map_or(0, |(before, _)| self.reached[before].depth + 1);
            self.reached.push(Reached { from, depth });
            self.ways_back.push(Vec::new());
        }
        (number, number == next)
    }

    fn broken(&self, promise: String, number: usize, action: Option<A>) -> Broken {
        let mut way: Vec<_> = action.map(|action| format!("{action:?}")).into_iter().collect();
        let mut at = number;
        while let Some((before, action)) = self.reached[at].from {
            way.push(format!("{action:?}"));
            at = before;
        }
        way.reverse();
        Broken { promise, way }
    }

    /// Fails if there is a state from which no state at rest can be reached without optional actions.
    fn all_can_come_to_rest(&self) -> Result<(), Broken> {
        let mut can = vec![false; self.reached.len()];
        let mut looks = self.rests.clone();
        while let Some(number) = looks.pop() {
            if !std::mem::replace(&mut can[number], true) {
                looks.extend(self.ways_back[number].iter().map(|before| *before as usize));
            }
        }
        match can.iter().position(|can| !can) {
            None => Ok(()),
            Some(number) => Err(self.broken("the installation can come to rest".into(), number, None)),
        }
    }

    fn explored(&self) -> Explored {
        let depth = self.reached.iter().map(|reached| reached.depth).max().unwrap_or_default();
        Explored { states: self.reached.len(), steps: self.steps, rests: self.rests.len(), depth }
    }
}

mod tests {
    use super::*;

    /// A test model: a number that grows by one or two up to seven, and that may be lost.
    struct Counter {
        forbidden: u8,
        dead_end: u8,
    }

    impl Model for Counter {
        type State = u8;
        type Action = u8;

        fn start(&self) -> u8 {
            0
        }

        fn actions(&self, state: &u8) -> Vec<u8> {
            if *state == self.dead_end { vec![0] } else { (1..=2).filter(|by| state + by <= 7).collect() }
        }

        fn take(&self, state: &u8, action: u8) -> Result<u8, String> {
            let next = state + action;
            if next == self.forbidden { Err(format!("never {next}")) } else { Ok(next) }
        }

        fn is_optional(&self, _: u8) -> bool {
            false
        }

        fn rest(&self, _: &u8) -> Result<(), String> {
            Ok(())
        }

        fn sketch(&self, state: &u8) -> Vec<u8> {
            vec![*state]
        }
    }

    #[test]
    fn every_state_is_visited_once() {
        let explored = explore(&Counter { forbidden: 9, dead_end: 9 }).unwrap();
        assert_eq!(explored, Explored { states: 8, steps: 13, rests: 1, depth: 4 });
    }

    #[test]
    fn the_shortest_way_to_a_broken_promise_is_told() {
        let broken = explore(&Counter { forbidden: 4, dead_end: 9 }).unwrap_err();
        assert_eq!((broken.promise.as_str(), broken.way.len()), ("never 4", 2));
    }

    #[test]
    fn a_state_that_cannot_come_to_rest_is_found() {
        let broken = explore(&Counter { forbidden: 9, dead_end: 6 }).unwrap_err();
        assert_eq!((broken.promise.as_str(), broken.way.len()), ("the installation can come to rest", 3));
    }
}
