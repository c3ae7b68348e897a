//! The first screen: where everything is, and on the first run, commands to paste.

use std::{
    io::{self, Write},
    net::SocketAddr,
};

use key_service::first_run::FirstRun;
use shared::catalog::{Catalog, UpstreamKind};

/// Addresses at which the process listens.
pub(crate) struct Addresses {
    pub(crate) public: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) key_http: SocketAddr,
    pub(crate) key_grpc: SocketAddr,
}

/// Prints the screen. `public` is the address that clients use. Programs read the `listening` lines as well, which
/// keep their form.
pub(crate) fn print(
    out: &mut impl Write,
    at: &Addresses,
    public: &str,
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
        first.print(out, public, catalog)?;
    } else {
        writeln!(out)?;
        writeln!(out, "dashboard {}/dashboard", public.trim_end_matches('/'))?;
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
