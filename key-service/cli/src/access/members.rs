//! The commands about the people of an account.

use std::io::Write;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use shared::{ids::AccountId, table};

use crate::{
    arguments::{name, operator},
    failure::{operator_error, store_error},
};
use domain::member::{LinkMaker, Member, Role};
use key_service_management::{
    Error, Management,
    members::{MemberRefused, OWNER, link},
};

/// Maximum number of owners that an error lists.
const NAMED: usize = 10;

#[derive(Debug, Subcommand)]
pub enum MemberCommand {
    /// Create a member, and print a link that signs the member in once, within 72 hours
    Invite {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// Name of the member: an e-mail address or any handle
        #[arg(long, value_name = "WHO", value_parser = name)]
        name: String,
        /// Role: owner, viewer (reads everything, changes nothing) or lead (manages the API keys of one group)
        #[arg(long, value_parser = ["owner", "viewer", "lead"], default_value = "owner")]
        role: String,
        /// Group of a lead, by name, external id or id
        #[arg(long, value_name = "GROUP", required_if_eq("role", "lead"))]
        group: Option<String>,
    },
    /// List the members of an account, oldest first
    List {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
    },
    /// Remove the second factor of a member who lost both phone and recovery codes
    RemoveSecondFactor {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// The member's name
        #[arg(long, value_name = "WHO")]
        name: String,
    },
    /// Remove a member; its sessions end at once
    Remove {
        /// The account's name
        #[arg(long, value_name = "NAME")]
        account: String,
        /// The member's name
        #[arg(long, value_name = "WHO")]
        name: String,
    },
}

#[derive(Args, Debug)]
pub struct SignInLink {
    /// The account's name
    #[arg(long, value_name = "NAME")]
    account: String,
    /// Name of the member [default: owner, created if the account has no owner]
    #[arg(long, value_name = "WHO")]
    name: Option<String>,
}

pub(crate) async fn run(
    command: MemberCommand,
    management: &Management,
    public: &str,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        MemberCommand::Invite { account, name, role, group } => {
            let account = management.account(&account).await.map_err(operator_error)?;
            let group = match group {
                Some(text) => Some(management.group_called(account, &text).await.map_err(refused)?),
                None => None,
            };
            let role =
                Role::parse(&role, group).ok_or_else(|| anyhow!("--group: only a lead has a group"))?;
            let (_, token) = management.invite(account, &name, role, operator()).await.map_err(refused)?;
            writeln!(out, "{}", link(public, &token))?;
        }
        MemberCommand::List { account } => {
            let account = management.account(&account).await.map_err(operator_error)?;
            let members = management.members(account).await?;
            let rows = members.into_iter().map(|member| {
                let mark = |has: bool| if has { "yes" } else { "-" }.to_owned();
                [
                    member.id.to_string(),
                    member.name,
                    member.role.as_str().to_owned(),
                    member.role.group().map_or_else(|| "-".to_owned(), |group| group.to_string()),
                    mark(member.password.is_some()),
                    mark(member.second_factor.is_some()),
                    member.created_at.to_string(),
                ]
            });
            table::write(
                out,
                &["ID", "NAME", "ROLE", "GROUP", "PASSWORD", "SECOND FACTOR", "CREATED"],
                rows,
            )?;
        }
        MemberCommand::RemoveSecondFactor { account, name } => {
            let account = management.account(&account).await.map_err(operator_error)?;
            let member = management.member_named(account, &name).await.map_err(refused)?;
            management.remove_second_factor(account, &member, operator()).await.map_err(refused)?;
            writeln!(out, "the second factor of {name} has been removed")?;
        }
        MemberCommand::Remove { account, name } => {
            let account = management.account(&account).await.map_err(operator_error)?;
            let member = management.member_named(account, &name).await.map_err(refused)?;
            management.remove_member(account, member.id, operator()).await.map_err(refused)?;
            writeln!(out, "{name} is removed; its sessions have ended")?;
        }
    }
    Ok(())
}

pub(crate) async fn sign_in_link(
    SignInLink { account, name }: SignInLink,
    management: &Management,
    public: &str,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let account = management.account(&account).await.map_err(operator_error)?;
    let member = match name {
        Some(name) => management.member_named(account, &name).await.map_err(refused)?,
        None => owner(account, management).await?,
    };
    let token = management.sign_in_link(account, &member, LinkMaker::Operator).await.map_err(refused)?;
    writeln!(out, "{}", link(public, &token))?;
    tracing::info!(member = member.name, "the earlier sign-in link of this member no longer works");
    Ok(())
}

/// Finds the member `owner`, or creates it if the account has no owner. If the account has other owners, the operator
/// must name one, so that a mistyped command never creates another owner.
async fn owner(account: AccountId, management: &Management) -> anyhow::Result<Member> {
    let members = management.members(account).await?;
    if let Some(owner) = members.iter().find(|member| member.name == OWNER) {
        return Ok(owner.clone());
    }
    let owners: Vec<&str> = members.iter().filter(|m| m.is_owner()).map(|m| m.name.as_str()).collect();
    if owners.is_empty() {
        return management.add_member(account, OWNER, Role::Owner, operator()).await.map_err(refused);
    }
    let more = if owners.len() > NAMED { ", …" } else { "" };
    let owners = owners[..owners.len().min(NAMED)].join(", ");
    bail!(
        "--name: name a member. The owners are: {owners}{more}. To let someone else in, use `members invite`"
    )
}

/// Turns an error into a message for the operator. A refusal names the flag that caused it.
fn refused(error: Error<MemberRefused>) -> anyhow::Error {
    match error {
        Error::Refused(refused @ (MemberRefused::NoSuchGroup | MemberRefused::SeveralGroups)) => {
            anyhow!("--group: {refused}")
        }
        Error::Refused(refused) => anyhow!("--name: {refused}"),
        Error::Store(cause) => store_error(&cause, "members list"),
    }
}
