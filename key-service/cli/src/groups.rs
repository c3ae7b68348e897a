//! The commands about groups of API keys.

use std::io::Write;

use anyhow::anyhow;
use clap::Subcommand;
use shared::ids::GroupId;

use super::{name, operator, operator_error, refused, store_error, table, write_json, write_json_object};
use domain::group::{Group, GroupPatch};
use key_service_management::{
    Error, Management,
    governed::{Governed as _, Made},
    listing::{GroupFilter, Listing},
};
use key_service_objects::{Shown as _, settings};
use key_service_store::store::Order;

/// Groups read at a time.
const READ_AT_ONCE: usize = 500;

/// Commands on groups.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Make a group, and print its id; with an external id that exists, print the id of that group
    Create {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// A name for the group
        #[arg(long, value_parser = name)]
        name: String,
        /// Your own id of the group, unique in the account
        #[arg(long, value_name = "ID")]
        external_id: Option<String>,
        /// The group that the group lies in: grp_…
        #[arg(long, value_name = "ID")]
        parent: Option<GroupId>,
        /// Further settings, as the management API takes them: '{"limits": [{"amount": 5, "per": "week"}]}'
        #[arg(long, value_name = "JSON", default_value = "{}")]
        settings: String,
    },
    /// List the groups of an account, oldest first
    List {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// As a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show a group as JSON
    Show {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Its id: grp_…
        #[arg(long)]
        id: GroupId,
    },
    /// Archive a group for good: its keys and those of the groups in it are refused
    Archive {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Its id: grp_…
        #[arg(long)]
        id: GroupId,
    },
}

pub(super) async fn run(
    command: GroupCommand,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        GroupCommand::Create { account, name, external_id, parent, settings: json } => {
            let account = management.account(&account).await.map_err(operator_error)?;
            let flags = serde_json::json!({"name": name, "external_id": external_id}).to_string();
            let flags: GroupPatch =
                settings(flags.as_bytes(), true).map_err(|error| anyhow!(error.message))?;
            let patch: GroupPatch =
                settings(json.as_bytes(), true).map_err(|error| anyhow!("--settings: {}", error.message))?;
            let external_id = flags.external_id.filter(Option::is_some).or(patch.external_id);
            let parent = parent.map(Some).or(patch.parent);
            let patch = GroupPatch { name: flags.name, external_id, parent, ..patch };
            let (Made::New(group, _) | Made::Existing(group) | Made::Replayed(group)) =
                Group::create(management.by(account, operator()), patch, None)
                    .await
                    .map_err(refused("groups list"))?;
            writeln!(out, "{}", group.id)?;
        }
        GroupCommand::List { account, json } => {
            let groups = all(management, &account).await?;
            if json {
                let now = management.now();
                return write_json(out, groups.iter().map(|group| group.shown(now)));
            }
            let head =
                ["ID", "NAME", "EXTERNAL ID", "PARENT", "USED", "LIMIT", "KEYS", "CREATED", "ARCHIVED"];
            table::write(out, &head, groups.iter().map(row))?;
        }
        GroupCommand::Show { account, id } => {
            let account = management.account(&account).await.map_err(operator_error)?;
            let group = management.group(account, id).await.map_err(refused("groups list"))?;
            write_json_object(out, &group.shown(management.now()))?;
        }
        GroupCommand::Archive { account, id } => {
            let account = management.account(&account).await.map_err(operator_error)?;
            let group =
                Group::end(management.by(account, operator()), id).await.map_err(refused("groups list"))?;
            let at = group.spend.archived_at.map_or_else(String::new, |at| format!(" since {at}"));
            writeln!(out, "{id} ({}) is archived{at}", group.name)?;
        }
    }
    Ok(())
}

async fn all(management: &Management, account: &str) -> anyhow::Result<Vec<Group>> {
    let account = management.account(account).await.map_err(operator_error)?;
    let filter = GroupFilter::default();
    let mut listing = Listing { after: None, order: Order::Ascending, filter, limit: READ_AT_ONCE };
    let mut groups: Vec<Group> = Vec::new();
    loop {
        let page = management.list(account, &listing).await.map_err(|error| match error {
            Error::Refused(_) => anyhow!("the list changed while it was read; try again"),
            Error::Store(cause) => store_error(&cause, "groups list"),
        })?;
        groups.extend(page.items);
        listing.after = groups.last().map(|group| group.id);
        if !page.has_more {
            return Ok(groups);
        }
    }
}

fn row(group: &Group) -> [String; 9] {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        group.id.to_string(),
        group.name.clone(),
        or_none(group.external_id.clone()),
        or_none(group.spend.parent.map(|parent| parent.to_string())),
        group.spend.budget.used.to_string(),
        or_none(group.spend.budget.limit.map(|limit| limit.to_string())),
        group.keys.to_string(),
        group.created_at.to_string(),
        or_none(group.spend.archived_at.map(|at| at.to_string())),
    ]
}
