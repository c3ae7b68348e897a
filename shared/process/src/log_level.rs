//! Shows and replaces the log filter while the process runs.

use std::io::{self, Write};

use axum::{Router, body::Body, http::StatusCode, routing::get};
use clap::Args;
use shared_observe::log;

use super::admin_call::{AdminPort, ask, command_text};

/// Path on the admin port of every program.
const PATH: &str = "/log-level";

#[derive(Args, Debug)]
pub struct LogLevel {
    /// New filter, in force until the process ends: a level such as debug, or TARGET=LEVEL,… in the syntax of RUST_LOG;
    /// without it, the current filter is printed
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
}

impl LogLevel {
    pub async fn run(&self, admin: &AdminPort, out: &mut (dyn Write + Send)) -> io::Result<()> {
        let answer = ask(admin, PATH, self.filter.as_deref()).await?;
        out.write_all(answer.as_bytes())
    }
}

/// Returns the route on the admin port.
pub(super) fn routes() -> Router {
    Router::new().route(PATH, get(async || format!("{}\n", log::filter())).put(replace))
}

async fn replace(body: Body) -> Result<String, (StatusCode, String)> {
    let text = command_text(body).await?;
    match log::replace_filter(&text) {
        Ok(()) => {
            tracing::warn!(filter = text, "the log filter was replaced");
            Ok(format!("{}\n", log::filter()))
        }
        Err(reason) => Err((StatusCode::BAD_REQUEST, format!("{reason}\n"))),
    }
}
