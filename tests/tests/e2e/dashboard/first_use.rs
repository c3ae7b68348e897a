//! The first requests with a new key, run exactly as a user would paste them.

use std::{path::Path, process::Command, time::Duration};

use tests::harness::{Answer, Stack, attribute};

use super::signed_in;
use crate::apis::clients::succeeds;

/// How long an SDK may take to start on a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_requests_with_a_new_key_work_as_they_are_pasted() {
    let stack = Stack::start().await;
    stack.others_spend();
    let mut owner = signed_in(&stack, &stack.account, "owner").await;
    let form = owner.get("/dashboard/keys/new").await;
    let attempt = attribute(&form, "name=\"attempt\" value=\"").unwrap();
    let made = owner.post("/dashboard/keys", &[("label", "First"), ("attempt", &attempt)]).await;
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = tests.join(".venv/bin/python");
    for (name, program, arguments) in [
        ("curl", Path::new("sh"), &["-c"][..]),
        ("Python", &python, &["-c"]),
        ("Node.js", Path::new("node"), &["--input-type=module", "-e"]),
    ] {
        let mut command = Command::new(program);
        command.args(arguments).arg(pasted(&made, name)).current_dir(tests.join("clients/node"));
        succeeds(name, command, PATIENCE).await;
    }
    let key = made.text().split_once("data-copy>fg_api_").unwrap().1.split('<').next().unwrap();
    for agent in ["Codex", "Claude Code"] {
        assert!(pasted(&made, agent).starts_with(&format!("export API_KEY=fg_api_{key}\n")), "{made}");
    }
    assert!(
        pasted(&made, "settings.json").contains(&format!("\"ANTHROPIC_API_KEY\": \"fg_api_{key}\"")),
        "{made}"
    );
    let activity = owner.get("/dashboard/activity").await;
    assert_eq!(activity.text().matches("<tr title=\"gen_").count(), 3, "{activity}");
}

/// Returns the commands under this label on a page, as a browser copies them.
pub(super) fn pasted(page: &Answer, label: &str) -> String {
    let (_, rest) = page.text().split_once(&format!("aria-label=\"{label}\" data-copy>")).unwrap();
    unescaped(rest.split("</pre>").next().unwrap())
}

/// Returns text as a browser shows it.
fn unescaped(html: &str) -> String {
    html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}
