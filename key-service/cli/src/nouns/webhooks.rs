//! Commands that manage an account's webhooks.

use std::io::Write;

use anyhow::anyhow;
use clap::Subcommand;
use shared::{ids::WebhookId, time::Timestamp, wire::WebhookField};

use crate::{
    failure::refused,
    nouns::object::{self, InAccount, NamedObject, ObjectCommand, Tabled, or_none},
};
use domain::webhook::{Webhook, WebhookPatch};
use key_service_management::{Management, governed::Governed as _};
use key_service_objects::settings;

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Create a webhook, and print it as JSON with its secret, which cannot be shown again
    Create {
        #[command(flatten)]
        of: InAccount,
        /// Address to send events to
        #[arg(long)]
        url: String,
        /// Type of event to send, such as key.limit_reached; repeat for more types [default: all types]
        #[arg(long = "type", value_name = "TYPE")]
        types: Vec<String>,
    },
    /// Send a webhook.test event to a webhook once, and print the event
    Test(NamedObject<WebhookId>),
    /// Remove a webhook, and stop sending events to it
    Delete(NamedObject<WebhookId>),
    #[command(flatten)]
    Object(ObjectCommand<WebhookField, WebhookId>),
}

pub(crate) async fn run(
    command: WebhookCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        WebhookCommand::Create { of, url, types } => {
            let types = Some(types).filter(|types| !types.is_empty());
            let flags = serde_json::json!({"url": url, "types": types}).to_string();
            let patch: WebhookPatch =
                settings(flags.as_bytes(), true).map_err(|error| anyhow!(error.message))?;
            let made = Webhook::create(of.by(management).await?, patch, None).await;
            object::print_made(made.map_err(refused("webhooks list"))?, management, out)?;
        }
        WebhookCommand::Test(NamedObject { of, id }) => {
            let event = management.test_webhook(of.find(management).await?, id).await;
            writeln!(out, "{}", event.map_err(refused("webhooks list"))?)?;
        }
        WebhookCommand::Delete(NamedObject { of, id }) => {
            let deleted = Webhook::end(of.by(management).await?, id).await;
            let webhook = deleted.map_err(refused("webhooks list"))?;
            writeln!(out, "{id} ({}) is removed", webhook.url.as_str())?;
        }
        WebhookCommand::Object(command) => object::run::<Webhook>(command, management, out).await?,
    }
    Ok(())
}

impl Tabled for Webhook {
    const HEAD: &'static [&'static str] = &["ID", "URL", "TYPES", "CREATED", "DISABLED"];

    fn row(&self, _: Timestamp) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.url.as_str().to_owned(),
            self.types.as_ref().map_or_else(|| "all".to_owned(), |types| types.join(",")),
            self.created_at.to_string(),
            or_none(self.disabled.map(|(at, _)| at)),
        ]
    }
}
