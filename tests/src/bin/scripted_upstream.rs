//! The scripted upstream as a process of its own, for benchmarks and for trials by hand.

use std::{net::SocketAddr, sync::Arc};

use clap::Parser;
use tests::upstream::{Keep, Script, State, serve};
use tokio::net::TcpListener;

/// A model server that answers what it is told to, without any model.
#[derive(Parser)]
struct Flags {
    /// Address to listen at; port 0 takes a free one and prints it.
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Tokens that each answer has, unless the request tells a script.
    #[arg(long, default_value_t = 20)]
    tokens: u64,
    /// Tokens that each prompt counts as; four bytes a token without this.
    #[arg(long)]
    prompt_tokens: Option<u64>,
    /// Milliseconds between two tokens of a stream.
    #[arg(long, default_value_t = 20)]
    pace_ms: u64,
    /// Milliseconds before each answer.
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
