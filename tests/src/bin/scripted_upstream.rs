//! Runs the scripted upstream as a separate process, for benchmarks and manual experiments.

use std::{net::SocketAddr, sync::Arc};

use clap::Parser;
use tests::upstream::{Keep, Script, State, serve};
use tokio::net::TcpListener;

/// A model server that follows the script in each request, without any model.
#[derive(Parser)]
struct Flags {
    /// Address to listen on; with port 0, a free port is chosen and printed
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Number of tokens in each answer, unless the request has a script
    #[arg(long, default_value_t = 20)]
    tokens: u64,
    /// Number of tokens that each prompt counts as; by default, one for every four bytes
    #[arg(long)]
    prompt_tokens: Option<u64>,
    /// Time between two tokens of a stream, in milliseconds
    #[arg(long, default_value_t = 20)]
    pace_ms: u64,
    /// Time before each answer, in milliseconds
    #[arg(long, default_value_t = 0)]
    head_after_ms: u64,
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let flags = Flags::parse();
    let script = Script {
        completion_tokens: flags.tokens,
        prompt_tokens: flags.prompt_tokens,
        pace_ms: flags.pace_ms,
        head_after_ms: flags.head_after_ms,
        ..Script::default()
    };
    let listener = TcpListener::bind(flags.listen).await?;
    println!("listening upstream http://{}", listener.local_addr()?);
    serve(listener, Arc::new(State::new(script, Keep::Nothing))).await;
    Ok(())
}
