//! A small server of OpenAI's chat API with the demo model.

use std::{io::Write, net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::Context;
use clap::Parser;
use local_model::{CONTEXT_TOKENS, Engine, NAME};
use mimalloc::MiMalloc;
use shared::clock::System;
use shared_door::{
    limits::LimitOptions,
    serve::{Port, bind, serve},
};
use shared_process::{Basics, CommandLine, StopSignal};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Number of requests that are answered or wait. The model writes a few thousand tokens per second in total, so more
/// requests would only wait longer.
const MAX_REQUESTS: usize = 64;
const LISTEN: &str = "127.0.0.1:8000";

/// Serves the tiny demo model on the CPU. To serve your own weights, run llama.cpp, Ollama or vLLM instead.
#[derive(Parser)]
#[command(name = "local-model", version = shared_process::version())]
struct LocalModelArguments {
    /// Address to listen on
    #[arg(long, env = "FAREGATE_LOCAL_MODEL_LISTEN", value_name = "ADDRESS", default_value = LISTEN)]
    listen: SocketAddr,

    #[command(flatten)]
    limits: LimitOptions,

    #[command(flatten)]
    basics: Basics,
}

impl CommandLine for LocalModelArguments {
    fn basics(&self) -> (&Basics, SocketAddr, &'static str) {
        (&self.basics, self.listen, "/health")
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    shared_process::main(run).await
}

async fn run(arguments: LocalModelArguments) -> anyhow::Result<()> {
    // Listens from the start, so that a signal directly after the first line also drains.
    let mut stop = StopSignal::listen();
    let listener = bind("FAREGATE_LOCAL_MODEL_LISTEN", arguments.listen)?;
    let address = listener.local_addr()?;
    let limits = arguments.limits.raise();
    let bounds = limits.connections.open_bounds(limits.connections(1, 0)?);
    let port = Port::new(listener, bounds);
    let engine = Engine::start(Arc::new(System), MAX_REQUESTS)?;
    let line = format!("serving {NAME} ({CONTEXT_TOKENS} tokens of context) on http://{address}/v1");
    writeln!(std::io::stdout(), "{line}")?;
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(port, local_model::router(engine), shutdown.clone()));
    stop.arrival().await;
    tracing::info!("draining; running requests may finish");
    shutdown.cancel();
    server.await.context("the server")
}
