//! End-to-end tests of the real programs, through their public interfaces only.

#![expect(clippy::unwrap_used, reason = "what cannot be as expected fails the test")]

#[macro_use]
extern crate macro_rules_attribute;

attribute_alias! {
    // A test whose scripted servers run beside it, in a thread of their own.
    #[apply(fact)] = #[tokio::test(flavor = "multi_thread", worker_threads = 1)];
}

mod adapters;
mod attacks;
mod backups;
mod bad_input;
mod budgets;
mod caps;
mod certificates;
mod clients;
mod commands;
mod containers;
mod counting;
mod crashes;
mod credentials;
mod dashboard;
mod demo_model;
mod deployments;
mod dialects;
mod doctor;
mod documents;
mod doors;
mod events;
mod failures;
mod first_request;
mod full_disk;
mod fuzz;
mod grants;
mod harness;
mod init;
mod leases;
mod leaving;
mod management;
mod metrics;
mod moving;
mod natives;
mod openapi;
mod operating;
mod operator;
mod payments;
mod prices;
mod reach;
mod recipes;
mod releasing;
mod reload;
mod routing;
mod scopes;
mod services;
mod sizes;
mod start;
mod structure;
mod takeover;
mod tls;
mod traces;
mod transfers;
mod unread;
mod upgrades;
mod upstream;
mod usage;
mod webhooks;
mod windows;
mod wire;
