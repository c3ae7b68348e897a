//! The commands about groups of API keys.

use std::io::Write;

use anyhow::anyhow;
use clap::Subcommand;
use shared::{ids::GroupId, time::Timestamp, wire::GroupField};

use crate::{
    arguments::name,
    failure::refused,
    nouns::object::{self, InAccount, NamedObject, ObjectCommand, Tabled, or_none},
};
use domain::group::{Group, GroupPatch};
use key_service_management::{Management, governed::Governed as _};
use key_service_objects::settings;

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Create a group, and print its id; if the external id exists already, print that group's id
    Create {
        #[command(flatten)]
        of: InAccount,
        /// A name for the group
        #[arg(long, value_parser = name)]
        name: String,
        /// Your own id for the group, unique in the account
        #[arg(long, value_name = "ID")]
        external_id: Option<String>,
        /// Parent group: grp_…
        #[arg(long, value_name = "ID")]
        parent: Option<GroupId>,
        /// Further settings as JSON, as in the management API: '{"limits": [{"amount": 5, "per": "week"}]}'
        #[arg(long, value_name = "JSON", default_value = "{}")]
        settings: String,
    },
    #[command(flatten)]
    Object(ObjectCommand<GroupField, GroupId>),
    /// Archive a group permanently: its keys and its child groups' keys are refused
    Archive(NamedObject<GroupId>),
}

pub(crate) async fn run(
    command: GroupCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        GroupCommand::Create { of, name, external_id, parent, settings: json } => {
            let flags = serde_json::json!({"name": name, "external_id": external_id}).to_string();
            let flags: GroupPatch =
                settings(flags.as_bytes(), true).map_err(|error| anyhow!(error.message))?;
            let patch: GroupPatch =
                settings(json.as_bytes(), true).map_err(|error| anyhow!("--settings: {}", error.message))?;
            let external_id = flags.external_id.filter(Option::is_some).or(patch.external_id);
            let parent = parent.map(Some).or(patch.parent);
            let patch = GroupPatch { name: flags.name, external_id, parent, ..patch };
            let issued = Group::create(of.by(management).await?, patch, None).await;
            writeln!(out, "{}", issued.map_err(refused("groups list"))?.made.into_inner().id)?;
        }
        GroupCommand::Object(command) => object::run::<Group>(command, management, out).await?,
        GroupCommand::Archive(NamedObject { of, id }) => {
            let group = Group::end(of.by(management).await?, id).await.map_err(refused("groups list"))?;
            let at = group.spend.archived_at.map_or_else(String::new, |at| format!(" since {at}"));
            writeln!(out, "{id} ({}) is archived{at}", group.name)?;
        }
    }
    Ok(())
}

impl Tabled for Group {
    const HEAD: &'static [&'static str] =
        &["ID", "NAME", "EXTERNAL ID", "PARENT", "USED", "LIMIT", "KEYS", "CREATED", "ARCHIVED"];

    fn row(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.name.clone(),
            or_none(self.external_id.as_ref()),
            or_none(self.spend.parent),
            self.spend.budget.used.to_string(),
            or_none(self.spend.budget.limit_at(now)),
            self.keys.to_string(),
            self.created_at.to_string(),
            or_none(self.spend.archived_at),
        ]
    }
}
