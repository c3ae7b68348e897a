//! The first requests with a key, ready to paste.

use maud::{Markup, html};
use shared::secret::{ExposeSecret, SecretString};

use super::show::copyable;

/// A request with this key at this address: with curl and with the SDKs that most clients use.
pub(super) fn commands(base: &str, key: &SecretString, model: &str) -> Markup {
    let key = key.expose_secret();
    let curl = format!(
        "curl {base}/v1/chat/completions \\\n  -H 'Authorization: Bearer {key}' \\\n  \
         -H 'Content-Type: application/json' \\\n  \
         -d '{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'"
    );
    let python = format!(
        "from openai import OpenAI\n\nclient = OpenAI(base_url=\"{base}/v1\", api_key=\"{key}\")\n\
         answer = client.chat.completions.create(\n    model=\"{model}\",\n    \
         messages=[{{\"role\": \"user\", \"content\": \"Hello\"}}],\n)\nprint(answer.choices[0].message.content)"
    );
    let node = format!(
        "import OpenAI from 'openai';\n\nconst client = new OpenAI({{ baseURL: '{base}/v1', apiKey: '{key}' }});\n\
         const answer = await client.chat.completions.create({{\n  model: '{model}',\n  \
         messages: [{{ role: 'user', content: 'Hello' }}],\n}});\nconsole.log(answer.choices[0].message.content);"
    );
    html! {
        h2 { "First use" }
        (copyable("curl", &curl))
        details { summary { "Python" } (copyable("Python", &python)) }
        details { summary { "Node.js" } (copyable("Node.js", &node)) }
    }
}
