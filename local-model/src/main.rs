//! A small server of the OpenAI chat API over the demo model.

use std::{io::Write, net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Parser;
use local_model::{Engine, Model, Options, about};
use mimalloc::MiMalloc;
use shared::{
    clock::System,
    probe::probe,
    process,
    serve::{Port, bind, exit, serve, until_signalled},
    telemetry::{self, LogFormat},
};
use tokio_util::sync::CancellationToken;

/// Allocator of the whole program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Serves the tiny demo model on the CPU. For weights of your own, run llama.cpp, Ollama or vLLM instead.
#[derive(Parser)]
#[command(name = "local-model", version)]
struct Arguments {
    /// Where it serves
    #[arg(
        long,
        env = "FAREGATE_LOCAL_MODEL_LISTEN",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8000"
    )]
    listen: SocketAddr,

    /// Settings that size the process.
    #[command(flatten)]
    process: process::Options,

    /// How log lines look
    #[arg(long, env = "FAREGATE_LOG_FORMAT", value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,

    /// What is logged, in the syntax of RUST_LOG
    #[arg(long, env = "FAREGATE_LOG", value_name = "FILTER", default_value = "info")]
    log: String,

    /// Serve nothing; ask the process that runs with these settings whether it is ready, and end with 0 if it is
    #[arg(long)]
    health: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit(run(Arguments::parse()).await)
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    if arguments.health {
        return Ok(probe(arguments.listen, "/health").await?);
    }
    telemetry::log(arguments.log_format, &arguments.log)
        .map_err(anyhow::Error::msg)
        .context("FAREGATE_LOG")?;
    // Listened for from the beginning, so that a signal right after the first line drains as well.
    let signalled = tokio::spawn(until_signalled());
    let listener = bind("FAREGATE_LOCAL_MODEL_LISTEN", arguments.listen).await?;
    let address = listener.local_addr()?;
    let process = arguments.process.start();
    // Its callers need no credential: a gateway is one.
    let bounds = process.connections.open_bounds(process.connections(1, 0)?);
    let port = Port::new(listener, bounds);
    let engine = Engine::start(Model::shipped()?, Options::new(Arc::new(System)))?;
    let (name, context) = (about().name, about().context_tokens);
    writeln!(std::io::stdout(), "serving {name} ({context} tokens of context) on http://{address}/v1")?;

    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(port, local_model::router(engine), shutdown.clone()));
    signalled.await.context("waiting for a signal")?;
    tracing::info!("draining; running requests may finish");
    shutdown.cancel();
    server.await.context("the server")
}
