//! Sets up a new installation: an account with credit, a management key, and commands to paste.

use std::io::{self, Write};

use shared::{
    money::NanoUsd,
    secret::{ExposeSecret, SecretString},
};
use shared_catalog::Catalog;

use domain::{
    event::Actor,
    member::{LinkMaker, Role},
};
use key_service_management::{
    Error, Management,
    accounts::AccountRefused,
    agents,
    management_keys::ManagementKeySettings,
    members::{OWNER, Token, link},
};

pub const ACCOUNT: &str = "default";
pub const CREDIT: NanoUsd = NanoUsd::from_usd(10);

pub struct FirstRun {
    /// Shown once, and stored only as a digest.
    management_key: SecretString,
    /// The token of a link that signs the owner in to the dashboard.
    sign_in: Token,
}

impl FirstRun {
    /// Creates an account and a key if there is no account yet; returns `None` otherwise. If several first runs are
    /// concurrent, only one gets `Some`.
    pub async fn prepare(management: &Management) -> anyhow::Result<Option<Self>> {
        if !management.accounts().await?.is_empty() {
            return Ok(None);
        }
        let account = match management.create_account(ACCOUNT, CREDIT, Actor::System).await {
            Ok(account) => account,
            // Another process is making the first run on the same store, and prints the result.
            Err(Error::Refused(AccountRefused::NameTaken)) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let settings = ManagementKeySettings::full("first run");
        let management_key = management.create_management_key(account, settings, Actor::System).await?;
        let owner = management.add_member(account, OWNER, Role::Owner, Actor::System).await?;
        let sign_in = management.sign_in_link(account, &owner, LinkMaker::Operator).await?;
        Ok(Some(Self { management_key, sign_in }))
    }

    /// Prints the key and the commands that lead to a first billed answer. `public` is the address that clients use.
    pub fn print(&self, out: &mut impl Write, public: &str, catalog: &Catalog) -> io::Result<()> {
        let public = public.trim_end_matches('/');
        let (link, key) = (link(public, &self.sign_in), self.management_key.expose_secret());
        let model = catalog.models.first().map_or("", |m| m.id.as_str());
        let agents = indented(&[agents::codex(public, model), agents::claude_code(public, model)]);
        write!(
            out,
            r#"
First run: created the account "{ACCOUNT}" with ${CREDIT} of credit, and a management key.

dashboard {public}/dashboard
Sign in with this link. It works once, within 15 minutes:
  {link}

The key is shown only now. Paste:

  export MANAGEMENT_KEY={key}

  # an API key that can spend one dollar at most
  export API_KEY=$(curl -s {public}/v1/management/keys \
    -H "Authorization: Bearer $MANAGEMENT_KEY" -H 'Content-Type: application/json' \
    -d '{{"label": "first", "limit": 1}}' | sed 's/.*"key":"\([^"]*\)".*/\1/')

  # a first answer; add "stream": true to see it arrive word by word
  curl {public}/v1/chat/completions \
    -H "Authorization: Bearer $API_KEY" -H 'Content-Type: application/json' \
    -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "What is an API key?"}}]}}'

  # agents, under the same limit: Codex and Claude Code, if they are installed
{agents}

  # what it cost
  curl {public}/v1/management/keys -H "Authorization: Bearer $MANAGEMENT_KEY"
"#
        )
    }
}

fn indented(commands: &[String]) -> String {
    let lines = commands.iter().flat_map(|command| command.lines());
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::join_all;

    use super::*;
    use key_service_management::testing::Office;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn of_many_first_runs_at_once_one_has_something_to_print() {
        let office = Office::open();
        let runs = (0..16).map(|_| {
            let management = Arc::clone(&office.management);
            tokio::spawn(async move { FirstRun::prepare(&management).await.unwrap() })
        });
        let made = join_all(runs).await.into_iter().filter_map(Result::unwrap).count();
        assert_eq!(made, 1);

        let accounts = office.management.accounts().await.unwrap();
        let named: Vec<_> = accounts.iter().map(|a| (a.name.as_str(), a.credit)).collect();
        assert_eq!(named, [(ACCOUNT, CREDIT)]);
        assert!(FirstRun::prepare(&office.management).await.unwrap().is_none(), "later runs make nothing");
    }
}
