//! The commands about operator keys, with which programs govern the installation.

use std::{io::Write, time::Duration};

use anyhow::anyhow;
use clap::{
    Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use serde::Serialize;
use shared::{
    ids::OperatorKeyId,
    money::NanoUsd,
    network::Network,
    secret::ExposeSecret,
    table,
    time::Timestamp,
    wire::{MAX_GRACE_SECONDS, OperatorScope},
};

use crate::{
    arguments::{name, operator, time, usd},
    failure::store_error,
    output::write_json,
};
use key_service_management::{
    Error, Management,
    operator_keys::{DEFAULT_MAX_PAYMENT, OperatorKeyRefused, OperatorKeySettings},
};
use key_service_store::store::OperatorKey;

#[derive(Debug, Subcommand)]
pub enum OperatorKeyCommand {
    /// Create an operator key, and print it; it cannot be shown again
    ///
    /// Operator keys work on /v1/operator alone. The public address serves it only with FAREGATE_PUBLIC_OPERATOR=all;
    /// the key-service's HTTP port always does.
    Create {
        /// A name for the key
        #[arg(long, value_parser = name)]
        name: String,
        /// What the key may do; repeat the flag for several
        #[arg(long = "scope", value_name = "SCOPE", value_parser = scopes(), required = true)]
        scopes: Vec<OperatorScope>,
        /// Time of expiry, such as 2027-12-31T23:59:59Z
        #[arg(long, value_name = "TIME", value_parser = time)]
        expires_at: Option<Timestamp>,
        /// Network that the key works from, such as 10.0.0.0/8; repeat the flag for several [default: any]
        #[arg(long = "network", value_name = "CIDR")]
        networks: Vec<Network>,
        /// The largest payment that the key may make [default: 1000]
        #[arg(long, value_name = "USD", value_parser = payment)]
        max_payment: Option<NanoUsd>,
    },
    /// List the operator keys, oldest first
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Create a key with the same name and rights, print it, and end the previous one
    Rotate {
        /// Id of the previous key: opk_…
        #[arg(long)]
        id: OperatorKeyId,
        /// Seconds that the previous key works for
        #[arg(long, value_name = "SECONDS", default_value_t = 0,
              value_parser = clap::value_parser!(u64).range(..=MAX_GRACE_SECONDS))]
        grace_seconds: u64,
    },
    /// Revoke an operator key permanently
    Revoke {
        /// Its id: opk_…
        #[arg(long)]
        id: OperatorKeyId,
    },
}

pub(crate) async fn run(
    command: OperatorKeyCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        OperatorKeyCommand::Create { name, scopes, expires_at, networks, max_payment } => {
            let networks = Some(networks).filter(|networks| !networks.is_empty());
            let max_payment = max_payment.unwrap_or(DEFAULT_MAX_PAYMENT);
            let settings = OperatorKeySettings { name, scopes, expires_at, networks, max_payment };
            let plaintext = management.create_operator_key(settings, operator()).await.map_err(refused)?;
            writeln!(out, "{}", plaintext.expose_secret())?;
        }
        OperatorKeyCommand::List { json } => {
            let keys = management.operator_keys().await?;
            if json {
                return write_json(out, keys.iter().map(OperatorKeyLine::of));
            }
            let head =
                ["ID", "NAME", "KEY", "SCOPES", "NETWORKS", "CREATED", "EXPIRES", "LAST USED", "REVOKED"];
            table::write(out, &head, keys.iter().map(row))?;
        }
        OperatorKeyCommand::Rotate { id, grace_seconds } => {
            let grace = Duration::from_secs(grace_seconds);
            let plaintext = management.rotate_operator_key(id, grace, operator()).await.map_err(refused)?;
            writeln!(out, "{}", plaintext.expose_secret())?;
        }
        OperatorKeyCommand::Revoke { id } => {
            let revoked = management.revoke_operator_key(id, operator()).await.map_err(refused)?;
            let at = revoked.revoked_at.map_or_else(String::new, |at| format!(" since {at}"));
            writeln!(out, "{id} ({}) is revoked{at}", revoked.name)?;
        }
    }
    Ok(())
}

/// An operator key in JSON. Scripts rely on the names: add names, but never rename one.
#[derive(Serialize)]
struct OperatorKeyLine<'a> {
    id: OperatorKeyId,
    name: &'a str,
    key_hint: &'a str,
    scopes: &'a [OperatorScope],
    networks: Option<&'a [Network]>,
    max_payment: NanoUsd,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    last_used_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
}

impl<'a> OperatorKeyLine<'a> {
    fn of(key: &'a OperatorKey) -> Self {
        let OperatorKey { id, name, hint, rights, created_at, expires_at, last_used_at, revoked_at, ends_at } =
            key;
        Self {
            id: *id,
            name,
            key_hint: hint,
            scopes: &rights.scopes,
            networks: rights.networks.as_deref(),
            max_payment: rights.max_payment,
            created_at: *created_at,
            expires_at: *expires_at,
            last_used_at: *last_used_at,
            revoked_at: *revoked_at,
            ends_at: *ends_at,
        }
    }
}

fn row(key: &OperatorKey) -> [String; 9] {
    let time = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
    let scopes: Vec<_> = key.rights.scopes.iter().map(|scope| scope.as_str()).collect();
    let networks = key.rights.networks.as_ref();
    let networks = networks.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","));
    [
        key.id.to_string(),
        key.name.clone(),
        key.hint.clone(),
        scopes.join(","),
        networks.unwrap_or_else(|| "any".to_owned()),
        key.created_at.to_string(),
        time(key.end()),
        time(key.last_used_at),
        time(key.revoked_at),
    ]
}

/// Parses a scope. Help and errors list the names.
fn scopes() -> impl TypedValueParser<Value = OperatorScope> {
    let names = OperatorScope::ALL.map(OperatorScope::as_str);
    PossibleValuesParser::new(names).try_map(|text| OperatorScope::parse(&text).ok_or("unknown scope"))
}

fn payment(text: &str) -> Result<NanoUsd, String> {
    usd(text, NanoUsd::ZERO)
}

/// Turns an error into a message for the operator. A refusal names the flag that caused it.
fn refused(error: Error<OperatorKeyRefused>) -> anyhow::Error {
    let flag = match error {
        Error::Refused(OperatorKeyRefused::NotFound | OperatorKeyRefused::Ended) => "--id",
        Error::Refused(OperatorKeyRefused::NoScope) => "--scope",
        Error::Refused(OperatorKeyRefused::TooManyNetworks) => "--network",
        Error::Refused(OperatorKeyRefused::BadPayment) => "--max-payment",
        Error::Refused(OperatorKeyRefused::LongGrace) => "--grace-seconds",
        Error::Refused(OperatorKeyRefused::TooMany) => "operator-keys",
        Error::Store(cause) => return store_error(&cause, "operator-keys list"),
    };
    anyhow!("{flag}: {error}")
}
