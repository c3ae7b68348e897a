//! The first screen: addresses and, on the first run, commands to paste.

use std::{
    io::{self, Write},
    net::SocketAddr,
};

use inference_gateway::server::RunningGateway;
use key_service::{first_run::FirstRun, server::RunningKeyService};
use shared_catalog::{Catalog, UpstreamKind};

pub(crate) struct Addresses {
    /// `https` if the public port speaks TLS.
    pub(crate) scheme: &'static str,
    pub(crate) public: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) key_http: SocketAddr,
    pub(crate) key_grpc: SocketAddr,
}

impl Addresses {
    /// Lists the addresses that the running parts listen on.
    pub(crate) fn of(
        scheme: &'static str,
        gateway: &RunningGateway,
        key_service: &RunningKeyService,
        admin: SocketAddr,
    ) -> Self {
        let RunningKeyService { http: key_http, grpc: key_grpc, .. } = *key_service;
        Self { scheme, public: gateway.public, admin, key_http, key_grpc }
    }
}

/// Prints the screen. `public` is the address that clients use. Programs parse the `listening` lines, so their format
/// never changes.
pub(crate) fn print(
    out: &mut impl Write,
    at: &Addresses,
    public: &str,
    catalog: &Catalog,
    first: Option<&FirstRun>,
) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let Addresses { scheme, public: listen, admin, key_http, key_grpc } = at;
    write!(
        out,
        "Faregate {version}: prepaid API keys for language models

listening public {scheme}://{listen}
listening admin http://{admin}
listening key-http http://{key_http}
listening key-grpc http://{key_grpc}

"
    )?;
    models(out, catalog)?;
    if let Some(first) = first {
        first.print(out, public, catalog)?;
    } else {
        writeln!(out, "\ndashboard {}/dashboard", public.trim_end_matches('/'))?;
    }
    out.flush()
}

fn models(out: &mut impl Write, catalog: &Catalog) -> io::Result<()> {
    writeln!(out, "models: {}", catalog.ids().join(", "))?;
    let builtin = catalog.models.iter().flat_map(|m| &m.upstreams).any(|u| u.kind == UpstreamKind::Builtin);
    if builtin {
        writeln!(
            out,
            "{} answers for each model whose upstream is builtin: {}",
            local_model::NAME,
            local_model::DESCRIPTION
        )?;
        writeln!(
            out,
            "To connect a real model, run `faregate init`, or give a model an upstream with a `url` in config/models.toml (FAREGATE_MODELS)."
        )?;
    }
    Ok(())
}
