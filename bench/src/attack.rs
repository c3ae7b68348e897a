//! Attacks on a running installation: can unauthenticated callers or single customers harm the others?
//!
//! The program `attack` runs all of them at length; the end-to-end tests run the quick ones.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;

use tests::harness::{Deployment, Form, Options, Stack};

pub mod bodies;
mod customers;
mod demo;
pub mod events;
pub mod filling;
pub mod interim;
pub mod pages;
mod passage;
mod paying;
mod ports;
pub mod rebinding;
mod row;
pub mod silent;
pub mod unauthenticated;
pub mod unread;

use bodies::Body;
pub use row::Row;

/// Sizes of the attacks.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Silent sockets of the flood.
    pub sockets: usize,
    /// Number of processes that open them. One process may open only a limited number of files.
    pub processes: usize,
    /// Number of connections with stalled bodies, and of bodies on each.
    pub bodies: (usize, usize),
    /// Number of requests while no scraper reads the metrics.
    pub requests: usize,
}

/// A group of attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Silent sockets of every kind and oversized heads, on every port of the all-in-one program
    Ports,
    /// The same on the ports of the separate services
    Services,
    /// Thousands of silent sockets, next to a paying caller
    Flood,
    /// Busy callers without a credential, next to a paying one
    Unauthenticated,
    /// Stalled bodies and large heads
    Bodies,
    /// Pages of the dashboard that an unauthenticated client leaves unread, and pages of large groups
    Pages,
    /// Requests while no scraper reads the metrics
    Unscraped,
    /// Streams of a customer that does not read them
    Slots,
    /// A customer that sends the largest bodies
    Large,
    /// Endless interim heads from servers that the installation calls
    Interim,
    /// An owner that fills the store and reads its pages, and unauthenticated callers that guess account names
    Filling,
    /// A customer's webhooks that never answer or that rescan many events, next to another customer's webhook
    Webhooks,
    /// An account that makes changes without end, each of which records an event, over a Redis that is nearly full
    Events,
    /// A page in a browser that uses DNS rebinding against the admin port and the public port, and changes that stall
    Rebinding,
    /// Waiting requests of a customer that tries to save up tokens of a rate
    Rates,
    /// Members of request bodies that must not reach an upstream
    Passed,
    /// The demo model's own port
    Demo,
    /// A customer whose request is repeated in an answer that exceeds the largest event, and one whose query and
    /// headers a vendor refuses
    Passing,
}

/// Maximum duration of one part.
const PART_DEADLINE: Duration = Duration::from_mins(10);

/// Runs these parts one after the other and passes each row of the table to `show`. Returns the parts that failed.
pub async fn run(plan: &Plan, parts: &[Part], mut show: impl FnMut(&Row)) -> Vec<Part> {
    let mut broken = Vec::new();
    for part in parts {
        let rows = rows_or_failure(plan, *part).await;
        rows.iter().for_each(&mut show);
        if rows.iter().any(|row| !row.held) {
            broken.push(*part);
        }
    }
    broken
}

/// Runs a part and returns its rows. A part that does not finish, or after which the books do not balance, becomes a
/// failed row; the other parts still run.
async fn rows_or_failure(plan: &Plan, part: Part) -> Vec<Row> {
    let failure = |expected: String, seen: &str| {
        vec![Row { name: format!("{part:?}"), expected, seen: seen.into(), held: false }]
    };
    let rows = AssertUnwindSafe(rows(plan, part)).catch_unwind();
    match tokio::time::timeout(PART_DEADLINE, rows).await {
        Ok(Ok(rows)) => rows,
        Ok(Err(_panic)) => failure("finishes".into(), "panicked; see standard error"),
        Err(_) => failure(format!("over in {PART_DEADLINE:?}"), "not over"),
    }
}

async fn rows(plan: &Plan, part: Part) -> Vec<Row> {
    match part {
        Part::Ports => {
            let stack = stack().await;
            ports::rows("", stack.server(), &["public", "admin", "key-http", "key-grpc"]).await
        }
        Part::Services => {
            let deployment = Deployment::services(1, 1, Form::Alone);
            let stack = Stack::with(Options { deployment, ..Options::default() }).await;
            let (mut rows, more) = tokio::join!(
                ports::rows("gateway ", stack.server(), &["public", "admin"]),
                ports::rows("key-service ", &stack.key_services[0], &["admin", "key-http", "key-grpc"]),
            );
            rows.extend(more);
            rows.push(bodies::row(&stack.key_services[0], "key-http", plan.bodies, Body::Management).await);
            rows
        }
        Part::Flood => vec![unauthenticated::flood_row(&stack().await, plan.sockets, plan.processes).await],
        Part::Unauthenticated => unauthenticated::rows(&stack().await).await,
        Part::Bodies => {
            let mut rows = Vec::new();
            for body in Body::ALL {
                rows.push(bodies::row(stack().await.server(), "public", plan.bodies, body).await);
            }
            rows
        }
        Part::Pages => {
            let mut rows = pages::rows(&stack().await).await;
            rows.extend(pages::of_groups(&stack().await).await);
            rows
        }
        Part::Unscraped => vec![customers::unscraped(&stack().await, plan.requests).await],
        Part::Slots => customers::slots().await,
        Part::Large => vec![customers::large_bodies(&stack().await).await],
        Part::Interim => interim::rows().await,
        Part::Filling => {
            let mut rows = filling::owner().await;
            rows.push(filling::guesses().await);
            rows
        }
        Part::Webhooks => customers::webhooks::rows().await,
        Part::Events => events::rows().await,
        Part::Rebinding => {
            let env = vec![("FAREGATE_PUBLIC_URL", "https://models.example.com".to_owned())];
            let stack = Stack::with(Options { env, ..Options::default() }).await;
            rebinding::rows(&stack).await
        }
        Part::Rates => vec![customers::rates::saved_tokens(&stack().await).await],
        Part::Passed => passage::members::rows().await,
        Part::Demo => demo::rows(plan.bodies).await,
        Part::Passing => vec![passage::answers::repeated().await, passage::answers::refused().await],
    }
}

/// Starts an installation in one process.
async fn stack() -> Stack {
    let stack = Stack::start().await;
    stack.others_spend();
    stack
}
