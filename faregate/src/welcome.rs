//! The first screen: where everything is, and on the first run, commands to paste.

use std::{
    io::{self, Write},
    net::SocketAddr,
};

use shared::{
    catalog::{Catalog, UpstreamKind},
    secret::ExposeSecret,
};

use crate::first_run::{ACCOUNT, CREDIT, FirstRun};

/// Where the process listens.
pub(crate) struct Addresses {
    pub(crate) public: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) key_http: SocketAddr,
    pub(crate) key_grpc: SocketAddr,
}

/// Prints the screen. The `listening` lines are for programs as well, and keep their form.
pub(crate) fn print(
    out: &mut impl Write,
    at: &Addresses,
    catalog: &Catalog,
    first: Option<&FirstRun>,
) -> io::Result<()> {
    writeln!(out, "Faregate {}: prepaid API keys for language models", env!("CARGO_PKG_VERSION"))?;
    writeln!(out)?;
    writeln!(out, "listening public http://{}", at.public)?;
    writeln!(out, "listening admin http://{}", at.admin)?;
    writeln!(out, "listening key-http http://{}", at.key_http)?;
    writeln!(out, "listening key-grpc http://{}", at.key_grpc)?;
    writeln!(out)?;
    models(out, catalog)?;
    if let Some(first) = first {
        first_steps(out, at, catalog, first)?;
    }
    out.flush()
}

fn models(out: &mut impl Write, catalog: &Catalog) -> io::Result<()> {
    writeln!(out, "models: {}", catalog.ids().join(", "))?;
    let builtin = catalog.models.iter().flat_map(|m| &m.upstreams).any(|u| u.kind == UpstreamKind::Builtin);
    if builtin {
        let about = local_model::about();
        writeln!(out, "{} stands in for them: {}", about.name, about.sentence)?;
        writeln!(
            out,
            "To connect a real one, give a model an upstream with a `url` in config/models.toml (FAREGATE_MODELS)."
        )?;
    }
    Ok(())
}

fn first_steps(out: &mut impl Write, at: &Addresses, catalog: &Catalog, first: &FirstRun) -> io::Result<()> {
    let base = format!("http://{}/v1", at.public);
    let model = catalog.models.first().map_or("", |m| m.id.as_str());
    writeln!(out)?;
    writeln!(
        out,
        "First run: made the account \"{ACCOUNT}\" with ${CREDIT} of credit, and a management key."
    )?;
    writeln!(out, "The key is shown this once. Paste:")?;
    writeln!(out)?;
    writeln!(out, "  export MANAGEMENT_KEY={}", first.management_key.expose_secret())?;
    writeln!(out)?;
    writeln!(out, "  # an API key that can spend one dollar at most")?;
    writeln!(out, "  export API_KEY=$(curl -s {base}/management/keys \\")?;
    writeln!(out, "    -H \"Authorization: Bearer $MANAGEMENT_KEY\" -H 'Content-Type: application/json' \\")?;
    writeln!(
        out,
        "    -d '{{\"label\": \"first\", \"limit\": 1}}' | sed 's/.*\"key\":\"\\([^\"]*\\)\".*/\\1/')"
    )?;
    writeln!(out)?;
    writeln!(out, "  # a first answer; add \"stream\": true to see it come word by word")?;
    writeln!(out, "  curl {base}/chat/completions \\")?;
    writeln!(out, "    -H \"Authorization: Bearer $API_KEY\" -H 'Content-Type: application/json' \\")?;
    writeln!(
        out,
        "    -d '{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"What is an API key?\"}}]}}'"
    )?;
    writeln!(out)?;
    writeln!(out, "  # what it cost")?;
    writeln!(out, "  curl {base}/management/keys -H \"Authorization: Bearer $MANAGEMENT_KEY\"")
}
