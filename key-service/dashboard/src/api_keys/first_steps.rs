//! Commands to paste that send a request with a key.

use maud::{Markup, html};
use shared::secret::{ExposeSecret, SecretString};

use crate::refused::{REASONS, explained};
use key_service_management::agents::{self, VARIABLE};
use key_service_page::show::{copyable, copyable_line};

/// How a key is written in the commands for curl, Python and Node.js, and the line before the commands for agents.
struct Spelling {
    header: String,
    python: String,
    node: String,
    before_agents: String,
}

/// Shows commands with the plaintext of a new key, for curl, SDKs and agents.
pub(crate) fn commands(base: &str, key: &SecretString, model: &str) -> Markup {
    let key = key.expose_secret();
    let spelling = Spelling {
        header: format!("'Authorization: Bearer {key}'"),
        python: format!("\"{key}\""),
        node: format!("'{key}'"),
        before_agents: format!("export {VARIABLE}={key}\n"),
    };
    html! {
        h2 #use { "Use it" }
        (each(base, model, &spelling, true))
    }
}

/// Shows the same commands for a key whose plaintext is no longer known. They read it from an environment variable.
pub(crate) fn commands_of_known_key(base: &str, model: &str) -> Markup {
    let spelling = Spelling {
        header: format!("\"Authorization: Bearer ${VARIABLE}\""),
        python: format!("os.environ[\"{VARIABLE}\"]"),
        node: format!("process.env.{VARIABLE}"),
        before_agents: String::new(),
    };
    html! {
        section.card {
            h2 #use { "Use it" }
            p { "Set the environment variable " code { (VARIABLE) } " to your key. The key was shown only when it was created or rotated; rotate it if it is lost." }
            (copyable_line("Base address for SDKs:", &format!("{base}/v1")))
            (each(base, model, &spelling, false))
            details { summary { "What a refusal means" }
                ul { @for (code, _) in REASONS { li { code { (code) } ": " (explained(code)) } } }
            }
        }
    }
}

/// Shows the commands for curl, Python, Node.js, Codex and Claude Code. All are folded, except curl if `is_open`.
fn each(base: &str, model: &str, spelling: &Spelling, is_open: bool) -> Markup {
    let Spelling { header, python: python_key, node: node_key, before_agents } = spelling;
    let import = if python_key.starts_with("os.") { "import os\n\n" } else { "" };
    let curl = format!(
        "curl {base}/v1/chat/completions \\\n  -H {header} \\\n  \
         -H 'Content-Type: application/json' \\\n  \
         -d '{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'"
    );
    let python = format!(
        "{import}from openai import OpenAI\n\nclient = OpenAI(base_url=\"{base}/v1\", api_key={python_key})\n\
         answer = client.chat.completions.create(\n    model=\"{model}\",\n    \
         messages=[{{\"role\": \"user\", \"content\": \"Hello\"}}],\n)\nprint(answer.choices[0].message.content)"
    );
    let node = format!(
        "import OpenAI from 'openai';\n\nconst client = new OpenAI({{ baseURL: '{base}/v1', apiKey: {node_key} }});\n\
         const answer = await client.chat.completions.create({{\n  model: '{model}',\n  \
         messages: [{{ role: 'user', content: 'Hello' }}],\n}});\nconsole.log(answer.choices[0].message.content);"
    );
    let [codex, claude_code] = [agents::codex(base, model), agents::claude_code(base, model)]
        .map(|command| format!("{before_agents}{command}"));
    html! {
        @if is_open { (copyable("curl", &curl)) } @else { details { summary { "curl" } (copyable("curl", &curl)) } }
        details { summary { "Python" } (copyable("Python", &python)) }
        details { summary { "Node.js" } (copyable("Node.js", &node)) }
        details { summary { "Codex" } (copyable("Codex", &codex)) }
        details { summary { "Claude Code" } (copyable("Claude Code", &claude_code)) }
    }
}
