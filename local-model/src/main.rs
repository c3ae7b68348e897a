//! A small server of the OpenAI chat API over weights on disk, or over the demo model that is shipped in it.

use std::{io::Write, net::SocketAddr, num::NonZero, path::PathBuf, process::ExitCode, sync::Arc, thread};

use anyhow::Context;
use clap::Parser;
use local_model::{Engine, Model, Options};
use mimalloc::MiMalloc;
use shared::{
    clock::{Clock, System, random_bytes},
    probe::probe,
    process,
    serve::{Port, bind, exit, serve, until_signalled},
    telemetry::{self, LogFormat},
};
use tokio_util::sync::CancellationToken;

/// Allocator of the whole program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Serves a language model on the CPU. Without --weights, the tiny demo model.
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

    /// A folder in the Hugging Face layout (config.json, tokenizer.json, safetensors) or a GGUF file; llama, qwen2, qwen3
    #[arg(long, env = "FAREGATE_LOCAL_MODEL_WEIGHTS", value_name = "PATH")]
    weights: Option<PathBuf>,

    /// The name under which the model is served [default: that of its folder or file]
    #[arg(long, env = "FAREGATE_LOCAL_MODEL_NAME", value_name = "NAME")]
    served_model_name: Option<String>,

    /// Tokens that prompt and answer together may have; never more than the model was trained for
    #[arg(long, env = "FAREGATE_LOCAL_MODEL_CONTEXT", value_name = "TOKENS", default_value = "8192")]
    context: NonZero<usize>,

    /// Threads that large layers are spread over [default: one per core]
    #[arg(long, env = "FAREGATE_LOCAL_MODEL_THREADS", value_name = "COUNT")]
    threads: Option<NonZero<usize>>,

    /// Requests that are held at once, being answered or waiting for it; one more is told to come back
    #[arg(long, env = "FAREGATE_LOCAL_MODEL_MAX_REQUESTS", value_name = "COUNT", default_value = "64")]
    max_requests: NonZero<usize>,

    /// Tokens of earlier requests that are kept for others that begin alike
    #[arg(long, env = "FAREGATE_LOCAL_MODEL_CACHED_TOKENS", value_name = "TOKENS", default_value = "8192")]
    cached_tokens: usize,

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
    // From the beginning on: who is told to stop right after its first line ends what it has begun all the same.
    let signalled = tokio::spawn(until_signalled());
    let listener = bind("FAREGATE_LOCAL_MODEL_LISTEN", arguments.listen).await?;
    let address = listener.local_addr()?;
    let process = arguments.process.start();
    // Its callers need no credential: a gateway is one.
    let bounds = process.connections.open_bounds(process.connections(1, 0)?);
    let port = Port::new(listener, bounds);
    let model = load(&arguments)?;
    let told = format!(
        "serving {} ({} parameters, {} tokens of context) on http://{address}/v1",
        model.name(),
        rounded(model.parameters()),
        model.context()
    );
    let engine = Engine::start(model, options(&arguments))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{told}")?;
    drop(out);

    let shutdown = CancellationToken::new();
    let server = tokio::spawn(serve(port, local_model::router(engine), shutdown.clone()));
    signalled.await.context("waiting for a signal")?;
    tracing::info!("draining; running requests may finish");
    shutdown.cancel();
    server.await.context("the server")
}

fn load(arguments: &Arguments) -> anyhow::Result<Model> {
    let mut model = match &arguments.weights {
        None => Model::shipped()?,
        Some(path) => Model::open(path).context("FAREGATE_LOCAL_MODEL_WEIGHTS")?,
    };
    if let Some(name) = &arguments.served_model_name {
        model = model.named(name);
    }
    let cores = || thread::available_parallelism().map_or(1, NonZero::get);
    let threads = arguments.threads.map_or_else(cores, NonZero::get);
    Ok(model.with_context(arguments.context.get()).with_threads(threads)?)
}

fn options(arguments: &Arguments) -> Options {
    let now = || u64::try_from(System.now().seconds()).unwrap_or(0);
    let chance: Arc<dyn Clock> = Arc::new(System);
    let random = move || u64::from_le_bytes(random_bytes(&*chance));
    Options {
        max_requests: arguments.max_requests.get(),
        max_cached_tokens: arguments.cached_tokens,
        ..Options::new(now, random)
    }
}

/// A count as people say it: 2.6 million.
fn rounded(count: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one digit after the point is shown")]
    let millions = count as f64 / 1e6;
    if millions < 1000.0 {
        format!("{millions:.1} million")
    } else {
        format!("{:.1} billion", millions / 1e3)
    }
}
