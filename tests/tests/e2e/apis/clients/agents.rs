//! Codex and Claude Code, as users install them, over several turns with tools.

use super::*;
use crate::upstreams::natives::{compared, record};

/// Number of requests in an agent's two turns: three and two tool calls, and an answer to each turn.
const REQUESTS_OF_AN_AGENT: usize = 7;

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn codex_works_through_turns_that_change_a_file_at_every_upstream() {
    for api in Api::ALL {
        let stack = at(api).await;
        holds("node/codex.js", &stack, &stack.key().await, &[]).await;
        assert_turns(&stack, api, "codex").await;
    }
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn claude_code_works_through_turns_that_change_a_file_at_every_upstream_and_asks_once_where_nothing_is_left()
 {
    for api in Api::ALL {
        let stack = at(api).await;
        let poor = stack.key_limited(NanoUsd::ZERO).await;
        let more = [("POOR_KEY", poor.secret.as_str())];
        let exchanges = holds("node/claude.js", &stack, &stack.key().await, &more).await;
        assert_turns(&stack, api, "claude").await;
        assert_eq!(exchanges.iter().filter(|exchange| exchange.status == 402).count(), 1, "{api:?}");
    }
}

/// Asserts that an agent's requests used this API, that each later request read nearly all of the earlier prompt from
/// the upstream's cache, that the model received the file's content, and that the bill matches the upstream's record.
async fn assert_turns(stack: &Stack, api: Api, tag: &str) {
    let sent = stack.upstream.generations();
    assert_eq!(sent.len(), REQUESTS_OF_AN_AGENT, "{api:?}");
    assert!(sent.iter().all(|generation| generation.api == api && generation.tag == tag), "{api:?}");
    for (earlier, later) in sent.iter().zip(&sent[1..]) {
        let (earlier, later) = (earlier.served, later.served);
        assert!(later.cached * 10 >= earlier.prompt * 9, "{api:?}: {later:?} after {earlier:?}");
    }
    let told = String::from_utf8(sent[REQUESTS_OF_AN_AGENT - 1].body.to_vec()).unwrap();
    for read in ["one fox", "two foxes"] {
        assert!(told.contains(read), "{api:?}: {read}");
    }
    assert_paid(stack).await;
    let compared = compared(stack, &record(stack));
    assert_eq!(
        (&compared["equal"], &compared["billed"]["requests"]),
        (&json!(true), &json!(sent.len())),
        "{api:?}: {compared}"
    );
}

#[apply(fact)]
#[ignore = "slow: `make test-slow`"]
async fn agents_answer_to_the_commands_of_the_first_screen() {
    let stack = of(Models::Builtin).await;
    let key = stack.key().await;
    let printed = stack.server().printed("if they are installed\n").await;
    let (_, commands) = printed.split_once("if they are installed\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    // Codex refuses a home directory inside the directory for temporary files.
    let home = tempfile::TempDir::new_in(std::env::var("HOME").unwrap()).unwrap();
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/node/node_modules");
    let modules = modules.display();
    let script = format!(
        "set -eu
         codex() {{ node '{modules}/@openai/codex/bin/codex.js' \"$@\"; }}
         claude() {{ node '{modules}/@anthropic-ai/claude-code/cli-wrapper.cjs' \"$@\"; }}
         {{\n{commands}\n}} > said"
    );
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(home.path()).stdin(Stdio::null());
    shell.env("HOME", home.path()).env("CODEX_HOME", home.path()).env("API_KEY", &key.secret);
    succeeds("the first screen's commands", shell, ALL_FACTS).await;
    let said = std::fs::read_to_string(home.path().join("said")).unwrap();
    assert_eq!(said.matches("An API key makes model calls.").count(), 2, "{said}");
    assert!(stack.used(&key).await > NanoUsd::ZERO);
}
