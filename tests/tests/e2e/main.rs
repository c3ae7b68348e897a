//! End-to-end tests of the real programs, through their public interfaces only.

#![expect(clippy::unwrap_used, reason = "what cannot be as expected fails the test")]

mod adapters;
mod attacks;
mod bad_input;
mod budgets;
mod caps;
mod clients;
mod containers;
mod counting;
mod crashes;
mod credentials;
mod dashboard;
mod demo_model;
mod deployments;
mod dialects;
mod documents;
mod doors;
mod failures;
mod first_request;
mod fuzz;
mod grants;
mod harness;
mod leases;
mod leaving;
mod management;
mod metrics;
mod moving;
mod openapi;
mod operating;
mod prices;
mod recipes;
mod releasing;
mod reload;
mod routing;
mod scopes;
mod services;
mod sizes;
mod structure;
mod traces;
mod unread;
mod upstream;
mod usage;
mod webhooks;
mod windows;
mod wire;
