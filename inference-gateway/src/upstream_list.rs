//! Lists the current catalogue's upstreams on the admin port. Commands drain and restore them there.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    sync::Arc,
};

use axum::{
    Json, Router,
    body::Body,
    extract::State,
    http::StatusCode,
    routing::{get, put},
};
use clap::Subcommand;
use serde::{Deserialize, Serialize};
use shared::{clock::Clock, table};
use shared_process::admin_call::{AdminPort, ask, command_text};
use tokio::time::Duration;
use upstreams::{OfferedModels, UpstreamNow};

/// Path of the list on the admin port.
const LIST: &str = "/upstreams";
const DRAIN: &str = "/upstreams/drain";
const RESTORE: &str = "/upstreams/restore";

/// Commands on the upstreams of a running gateway, which answers on its admin port.
#[derive(Debug, Subcommand)]
pub enum UpstreamsCommand {
    /// List the upstreams of the current catalogue, with state, time of its last change, requests in flight, last
    /// failure and odd answers
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Stop sending new requests to an upstream, for all of its models; requests in flight finish
    ///
    /// Lasts through reloads of the catalogue, until the upstream is restored or the gateway ends. Other gateways are
    /// not affected.
    Drain {
        /// Host and port, as the list shows them
        address: String,
    },
    /// Send requests to a drained upstream again
    Restore {
        /// Host and port, as the list shows them
        address: String,
    },
}

/// An upstream of a model, as it is listed. It contains no text of an answer and no credentials.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListedUpstream {
    /// The name in the catalogue, which accounts see.
    pub(crate) name: String,
    pub(crate) address: String,
    /// The model's id in the catalogue.
    pub(crate) model: String,
    /// The model's name at the upstream.
    pub(crate) upstream_model: String,
    pub(crate) kind: String,
    /// One of `serving`, `set_aside`, `draining` and, once no request is in flight, `drained`.
    pub(crate) state: String,
    /// Time of the last change of the state.
    pub(crate) since: String,
    /// If the upstream is set aside: when it may get its next request.
    pub(crate) until: Option<String>,
    /// Number of requests for this model in flight at this upstream.
    pub(crate) in_flight: u64,
    pub(crate) last_failure: Option<ListedFailure>,
    /// Number of odd answers by kind, as in `gateway_upstream_oddities_total`, since the catalogue was read.
    pub(crate) odd_answers: BTreeMap<String, u64>,
}

/// The last failure of an upstream.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListedFailure {
    /// Kind of the failure, a label of `gateway_upstream_errors_total`.
    pub(crate) kind: String,
    pub(crate) at: String,
}

#[derive(Clone)]
struct UpstreamRoutes {
    models: Arc<OfferedModels>,
    clock: Arc<dyn Clock>,
}

pub fn admin_routes(models: Arc<OfferedModels>, clock: Arc<dyn Clock>) -> Router {
    Router::new()
        .route(LIST, get(list))
        .route(DRAIN, put(drain))
        .route(RESTORE, put(restore))
        .with_state(UpstreamRoutes { models, clock })
}

type Changed = Result<Json<Vec<ListedUpstream>>, (StatusCode, String)>;

async fn list(State(listed): State<UpstreamRoutes>) -> Json<Vec<ListedUpstream>> {
    Json(listed.list(|_| true))
}

async fn drain(State(listed): State<UpstreamRoutes>, body: Body) -> Changed {
    listed.change(body, true).await
}

async fn restore(State(listed): State<UpstreamRoutes>, body: Body) -> Changed {
    listed.change(body, false).await
}

impl UpstreamRoutes {
    fn list(&self, is_meant: impl Fn(&str) -> bool) -> Vec<ListedUpstream> {
        let now = self.clock.now();
        let ago = |ago: Duration| now.minus(ago).to_string();
        let listed = |(model, of): (String, UpstreamNow)| ListedUpstream {
            name: of.name,
            address: of.address,
            model,
            upstream_model: of.upstream_model,
            kind: of.kind.to_owned(),
            state: of.state.to_owned(),
            since: ago(of.since),
            until: of.until.map(|until| now.plus(until).to_string()),
            in_flight: of.in_flight,
            last_failure: of
                .last_failure
                .map(|(kind, at)| ListedFailure { kind: kind.to_owned(), at: ago(at) }),
            odd_answers: of
                .odd_answers
                .into_iter()
                .map(|(kind, answers)| (kind.to_owned(), answers))
                .collect(),
        };
        self.models.upstreams().into_iter().filter(|(_, of)| is_meant(&of.address)).map(listed).collect()
    }

    /// Drains or restores the upstreams at an address, and lists them.
    async fn change(&self, body: Body, drained: bool) -> Changed {
        let address = command_text(body).await?;
        if !self.models.drain(&address, drained) {
            let known: BTreeSet<String> =
                self.models.upstreams().into_iter().map(|(_, of)| of.address).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let shown = shared::text::shown(&address, 100);
            return Err((
                StatusCode::NOT_FOUND,
                format!("no upstream has the address '{shown}'; known addresses: {known}\n"),
            ));
        }
        tracing::warn!(address, drained, "an upstream was drained or restored by command");
        Ok(Json(self.list(|other| other == address)))
    }
}

impl ListedUpstream {
    /// Lists the odd answers in words; empty if there are none.
    fn odd_answers(&self) -> String {
        let kinds = self.odd_answers.iter().map(|(kind, answers)| format!("{answers} {kind}"));
        kinds.collect::<Vec<_>>().join(", ")
    }
}

/// Writes which upstreams have sent odd answers to the running gateway with this admin port.
pub async fn write_odd_answers(admin: &AdminPort, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let answer = match ask(admin, LIST, None).await {
        Ok(answer) => answer,
        Err(e) => {
            return writeln!(
                out,
                "Odd answers are not listed: only a running gateway has their counts, and it could not be asked: {e}."
            );
        }
    };
    let listed: Vec<ListedUpstream> = serde_json::from_str(&answer)?;
    let odd: Vec<_> = listed.iter().filter(|of| !of.odd_answers.is_empty()).collect();
    if odd.is_empty() {
        return writeln!(out, "The running gateway has received no odd answers since it read its catalogue.");
    }
    odd.into_iter().try_for_each(|of| {
        writeln!(
            out,
            "model \"{}\", upstream \"{} at {}\": odd answers since the gateway read its catalogue: {}.",
            of.model,
            of.upstream_model,
            of.address,
            of.odd_answers()
        )
    })
}

impl UpstreamsCommand {
    /// Sends the command to the gateway with this admin port, and prints its answer.
    pub async fn run(&self, admin: &AdminPort, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let (answer, json) = match self {
            Self::List { json } => (ask(admin, LIST, None).await?, *json),
            Self::Drain { address } => (ask(admin, DRAIN, Some(address)).await?, false),
            Self::Restore { address } => (ask(admin, RESTORE, Some(address)).await?, false),
        };
        let listed: Vec<ListedUpstream> = serde_json::from_str(&answer)?;
        if json {
            return writeln!(out, "{}", serde_json::to_string_pretty(&listed)?);
        }
        let row = |of: ListedUpstream| {
            let odd = of.odd_answers();
            let failure = of.last_failure.map(|failure| format!("{} at {}", failure.kind, failure.at));
            let until = of.until.map(|until| format!(" until {until}")).unwrap_or_default();
            [
                of.address,
                of.model,
                of.name,
                of.kind,
                of.state + &until,
                of.since,
                of.in_flight.to_string(),
                failure.unwrap_or_default(),
                odd,
            ]
        };
        let head = [
            "ADDRESS",
            "MODEL",
            "NAME",
            "KIND",
            "STATE",
            "SINCE",
            "UNDER WAY",
            "LAST FAILURE",
            "ODD ANSWERS",
        ];
        table::write(out, &head, listed.into_iter().map(row))
    }
}
