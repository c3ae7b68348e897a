//! Work that produces a profile for the compiler: requests of every kind, through all kinds of installations.

use std::time::Duration;

use tests::harness::Dialect;

use super::{
    extent::MANY,
    installation::{Installation, Setup},
    load::{self, Target, Work},
    system::upstream,
};

/// Duration of each kind of request.
const EACH: Duration = Duration::from_secs(2);
/// Number of chunks in a stream: a second's worth.
const CHUNKS: u32 = 50;

/// Serves requests of every kind. Ends the programs as a service manager would, which makes them write their profiles.
pub async fn run() {
    let upstream = upstream().await;
    let streamed = |dialect| Work::Streamed { dialect, at_once: MANY, chunks: CHUNKS };
    let works = [1, MANY].map(|at_once| Work::Whole { at_once }).into_iter();
    let works = works.chain([Work::Shared { at_once: MANY, connections: 2 }]);
    let works: Vec<_> =
        works.chain([Dialect::Chat, Dialect::Responses, Dialect::Messages].map(streamed)).collect();
    for setup in [Setup::AllInOne, Setup::AllInOneOverRedis, Setup::SERVICES] {
        let installation = Installation::start(setup, upstream.address).await;
        let target = |key: String| Target::new(installation.addresses(), vec![key]);
        let key = target(installation.key.clone());
        for work in &works {
            load::run(&key, *work, EACH).await;
        }
        let bounded = target(installation.make_bounded_key().await);
        load::run(&bounded, Work::Whole { at_once: MANY }, EACH).await;
        installation.end().await;
    }
}
