//! The commands about API keys.

use std::{io::Write, time::Duration};

use anyhow::bail;
use clap::Subcommand;
use shared::{
    ids::KeyId,
    secret::ExposeSecret,
    time::Timestamp,
    wire::{KeyField, MAX_GRACE_SECONDS},
};

use crate::{
    failure::refused,
    nouns::object::{self, InAccount, NamedObject, ObjectCommand, SettingFlags, Tabled, or_none},
};
use domain::key::ApiKey;
use key_service_management::{Management, governed::Governed as _, rotation::RotationTerms};

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create an API key, and print it as JSON with its plaintext, which cannot be shown again
    Create {
        #[command(flatten)]
        of: InAccount,
        #[command(flatten)]
        settings: SettingFlags<KeyField, true>,
    },
    #[command(flatten)]
    Object(ObjectCommand<KeyField, KeyId>),
    /// Give an API key a new plaintext, and print it; it cannot be shown again
    Rotate {
        #[command(flatten)]
        object: NamedObject<KeyId>,
        /// Seconds for which the previous plaintext keeps working, at most 30 days
        #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=MAX_GRACE_SECONDS))]
        grace_seconds: u64,
        /// Rotate even if the plaintext from before the last rotation still works; it then stops working at once
        #[arg(long)]
        force: bool,
    },
    /// Revoke an API key permanently
    Revoke(NamedObject<KeyId>),
}

pub(crate) async fn run(
    command: KeyCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        KeyCommand::Create { of, settings } => {
            let made = ApiKey::create(of.by(management).await?, settings.read()?, None).await;
            object::print_made(made.map_err(refused("keys list"))?, management, out)?;
        }
        KeyCommand::Object(command) => object::run::<ApiKey>(command, management, out).await?,
        KeyCommand::Rotate { object: NamedObject { of, id }, grace_seconds, force } => {
            let terms = RotationTerms { grace: Duration::from_secs(grace_seconds), is_forced: force };
            let rotated = of.by(management).await?.rotate(id, terms, None).await;
            match rotated.map_err(refused("GET /v1/management/keys/{id}"))?.secret {
                Some(plaintext) => writeln!(out, "{}", plaintext.expose_secret())?,
                None => bail!("the key was rotated before"),
            }
        }
        KeyCommand::Revoke(NamedObject { of, id }) => {
            let key = ApiKey::end(of.by(management).await?, id).await.map_err(refused("keys list"))?;
            let at = key.spend.revoked_at.map_or_else(String::new, |at| format!(" since {at}"));
            writeln!(out, "{id} ({}) is revoked{at}", key.label)?;
        }
    }
    Ok(())
}

impl Tabled for ApiKey {
    const HEAD: &'static [&'static str] =
        &["ID", "LABEL", "KEY", "STATUS", "USED", "LIMIT", "GROUP", "CREATED", "EXPIRES"];

    fn row(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.label.clone(),
            self.hint.clone(),
            self.status(now).as_str().to_owned(),
            self.spend.budget.used.to_string(),
            or_none(self.spend.budget.limit_at(now)),
            or_none(self.spend.group),
            self.created_at.to_string(),
            or_none(self.spend.expires_at),
        ]
    }
}
