//! End-to-end tests of the real programs, through their public interfaces only.

#![expect(clippy::unwrap_used, reason = "what cannot be as expected fails the test")]

#[macro_use]
extern crate macro_rules_attribute;

attribute_alias! {
    // A test runs alongside its scripted servers, which have their own threads.
    #[apply(fact)] = #[tokio::test(flavor = "multi_thread", worker_threads = 1)];
}

mod apis;
mod dashboard;
mod governing;
mod guides;
mod hostile;
mod house;
mod money;
mod operation;
mod operator;
mod services;
mod stores;
mod upstreams;
