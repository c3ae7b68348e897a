//! The commands about webhooks.

use std::io::Write;

use anyhow::anyhow;
use clap::Subcommand;
use shared::ids::WebhookId;

use super::{operator, operator_error, refused, table, write_json, write_json_object};
use domain::webhook::{Webhook, WebhookPatch};
use key_service_management::{
    Management,
    governed::{Governed as _, Made},
};
use key_service_objects::{Shown as _, settings, with_secret};

/// Commands on webhooks.
#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Make a webhook, and print it as JSON with its secret, which cannot be shown again
    Create {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// The address that events are sent to
        #[arg(long)]
        url: String,
        /// A type of the events to send, such as key.limit_reached; repeat it for more. Without it: all of them
        #[arg(long = "type", value_name = "TYPE")]
        types: Vec<String>,
    },
    /// List the webhooks of an account, oldest first
    List {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// As a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Send an event of type webhook.test to a webhook once, and print the event
    Test {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Its id: wh_…
        #[arg(long)]
        id: WebhookId,
    },
    /// Remove a webhook: nothing more is sent to it
    Delete {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Its id: wh_…
        #[arg(long)]
        id: WebhookId,
    },
}

pub(super) async fn run(
    command: WebhookCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let account_of = async |name: &str| management.account(name).await.map_err(operator_error);
    match command {
        WebhookCommand::Create { account, url, types } => {
            let account = account_of(&account).await?;
            let types = Some(types).filter(|types| !types.is_empty());
            let flags = serde_json::json!({"url": url, "types": types}).to_string();
            let patch: WebhookPatch =
                settings(flags.as_bytes(), true).map_err(|error| anyhow!(error.message))?;
            let now = management.now();
            match Webhook::create(management.by(account, operator()), patch, None)
                .await
                .map_err(refused("webhooks list"))?
            {
                Made::New(webhook, Some(secret)) => {
                    write_json_object(out, &with_secret(&webhook, &secret, now))?;
                }
                Made::New(webhook, None) | Made::Existing(webhook) | Made::Replayed(webhook) => {
                    write_json_object(out, &webhook.shown(now))?;
                }
            }
        }
        WebhookCommand::List { account, json } => {
            let webhooks = management.webhooks(account_of(&account).await?).await?;
            if json {
                let now = management.now();
                return write_json(out, webhooks.iter().map(|webhook| webhook.shown(now)));
            }
            table::write(out, &["ID", "URL", "TYPES", "CREATED", "DISABLED"], webhooks.iter().map(row))?;
        }
        WebhookCommand::Test { account, id } => {
            let event = management
                .test_webhook(account_of(&account).await?, id)
                .await
                .map_err(refused("webhooks list"))?;
            writeln!(out, "{event}")?;
        }
        WebhookCommand::Delete { account, id } => {
            let by = management.by(account_of(&account).await?, operator());
            let webhook = Webhook::end(by, id).await.map_err(refused("webhooks list"))?;
            writeln!(out, "{id} ({}) is removed", webhook.url.as_str())?;
        }
    }
    Ok(())
}

fn row(webhook: &Webhook) -> [String; 5] {
    [
        webhook.id.to_string(),
        webhook.url.as_str().to_owned(),
        webhook.types.as_ref().map_or_else(|| "all".to_owned(), |types| types.join(",")),
        webhook.created_at.to_string(),
        webhook.disabled.map_or_else(|| "-".to_owned(), |(at, _)| at.to_string()),
    ]
}
