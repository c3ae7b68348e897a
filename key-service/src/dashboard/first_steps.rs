//! The first requests with a key, ready to paste.

use maud::{Markup, html};
use shared::secret::{ExposeSecret, SecretString};

use super::show::{copyable, copyable_line};

/// Environment variable that commands of an existing key take the plaintext from.
const VARIABLE: &str = "API_KEY";

/// A request with this new key at this address, with curl and with the SDKs that most clients use.
pub(super) fn commands(base: &str, key: &SecretString, model: &str) -> Markup {
    let key = key.expose_secret();
    html! {
        h2 { "First use" }
        (each(base, model, [format!("'Authorization: Bearer {key}'"), format!("\"{key}\""), format!("'{key}'")], true))
    }
}

/// The same with a key whose plaintext is not known any more, and stands in an environment variable.
pub(super) fn commands_of_known_key(base: &str, model: &str) -> Markup {
    let keys = [
        format!("\"Authorization: Bearer ${VARIABLE}\""),
        format!("os.environ[\"{VARIABLE}\"]"),
        format!("process.env.{VARIABLE}"),
    ];
    html! {
        section.card {
            h2 #use { "Use this key" }
            p { "The key itself was shown once, when it was created or rotated. Put it into the environment variable " code { (VARIABLE) } "." }
            (copyable_line("Base address for SDKs:", &format!("{base}/v1")))
            (each(base, model, keys, false))
        }
    }
}

/// The commands: for curl, Python and Node.js, in which `keys` are written.
fn each(base: &str, model: &str, [header, python_key, node_key]: [String; 3], is_open: bool) -> Markup {
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
    html! {
        @if is_open { (copyable("curl", &curl)) } @else { details { summary { "curl" } (copyable("curl", &curl)) } }
        details { summary { "Python" } (copyable("Python", &python)) }
        details { summary { "Node.js" } (copyable("Node.js", &node)) }
    }
}
