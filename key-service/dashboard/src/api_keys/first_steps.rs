//! How to use a key: commands to paste that send a request, and lasting settings for the tools that people use.

use maud::{Markup, html};
use shared::secret::{ExposeSecret, SecretString};
use shared_catalog::Catalog;

use crate::refused::{REASONS, explained};
use key_service_management::agents::{self, VARIABLE};
use key_service_page::{
    form::{Fields, PageAddress},
    show::{copyable, copyable_line},
};

/// Stands for the key in files that cannot read an environment variable.
const PLACEHOLDER: &str = "YOUR_API_KEY";

/// How a key is written in commands and files.
struct Spelling {
    header: String,
    python: String,
    node: String,
    before_agents: String,
    /// The key itself, for files that cannot read a variable.
    plain: String,
}

/// Shows commands and settings with the plaintext of a new key.
pub(crate) fn commands(base: &str, key: &SecretString, model: &str) -> Markup {
    let key = key.expose_secret();
    let spelling = Spelling {
        header: format!("'Authorization: Bearer {key}'"),
        python: format!("\"{key}\""),
        node: format!("'{key}'"),
        before_agents: format!("export {VARIABLE}={key}\n"),
        plain: key.to_owned(),
    };
    html! {
        h2 #use { "Use it" }
        (each(base, model, &spelling, true))
    }
}

/// Like [`commands`], but for a key whose plaintext is no longer known. The commands read the plaintext from an
/// environment variable. The page at this address offers `models` to choose from.
pub(crate) fn commands_of_known_key(
    base: &str,
    models: &[String],
    PageAddress { path, query }: PageAddress<'_>,
) -> Markup {
    let spelling = Spelling {
        header: format!("\"Authorization: Bearer ${VARIABLE}\""),
        python: format!("os.environ[\"{VARIABLE}\"]"),
        node: format!("process.env.{VARIABLE}"),
        before_agents: String::new(),
        plain: PLACEHOLDER.into(),
    };
    let model = chosen(models, query);
    html! {
        section.card {
            h2 #use { "Use it" }
            p { "Set the environment variable " code { (VARIABLE) } " to your key. The key was shown only when it was created or rotated; rotate it if it is lost. Files below have " code { (PLACEHOLDER) } " in its place." }
            @if models.len() > 1 {
                form.filters method="get" action=(path) {
                    label { "Model" select name="model" {
                        @for offered in models { option value=(offered) selected[offered == model] { (offered) } }
                    } }
                    button { "Show" }
                }
            }
            (copyable_line("Base address for SDKs:", &format!("{base}/v1")))
            (each(base, model, &spelling, false))
            details { summary { "What a refusal means" }
                ul { @for (code, _) in REASONS { li { code { (code) } ": " (explained(code)) } } }
            }
        }
    }
}

/// Returns the model that an address chooses, or the first model if it chooses none.
fn chosen<'a>(models: &'a [String], query: &Fields) -> &'a str {
    let asked = models.iter().find(|model| *model == query.get("model"));
    asked.or(models.first()).map_or("", String::as_str)
}

/// Lists the chat models that all lists allow. If there is no such model, lists the first model of the catalogue.
pub(crate) fn models(catalog: &Catalog, lists: &[&Vec<String>]) -> Vec<String> {
    let chats = catalog.models.iter().filter(|model| model.serves.chat);
    let allowed = chats.filter(|model| lists.iter().all(|list| list.contains(&model.id)));
    let models: Vec<String> = allowed.map(|model| model.id.clone()).collect();
    if models.is_empty() {
        catalog.models.iter().take(1).map(|model| model.id.clone()).collect()
    } else {
        models
    }
}

/// Shows commands for curl, Python and Node.js, and settings of tools. All are folded, except curl if `is_open`.
fn each(base: &str, model: &str, spelling: &Spelling, is_open: bool) -> Markup {
    let Spelling { header, python: python_key, node: node_key, before_agents, plain } = spelling;
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
    let langchain = format!(
        "{import}from langchain_openai import ChatOpenAI\n\n\
         model = ChatOpenAI(model=\"{model}\", base_url=\"{base}/v1\", api_key={python_key})\n\
         print(model.invoke(\"Hello\").content)"
    );
    let [codex, claude_code] = [agents::codex(base, model), agents::claude_code(base, model)]
        .map(|command| format!("{before_agents}{command}"));
    html! {
        @if is_open { (copyable("curl", &curl)) } @else { details { summary { "curl" } (copyable("curl", &curl)) } }
        details { summary { "Python" } (copyable("Python", &python)) }
        details { summary { "Node.js" } (copyable("Node.js", &node)) }
        details { summary { "Codex" }
            p { "Add to " code { "~/.codex/config.toml" } ", set " code { (VARIABLE) } " in your shell, and run " code { "codex" } ":" }
            (copyable("config.toml", &codex_config(base, model)))
            p { "Or try it once, without changing a file:" }
            (copyable("Codex", &codex))
        }
        details { summary { "Claude Code" }
            p { "Add to " code { "~/.claude/settings.json" } " and run " code { "claude" } ":" }
            (copyable("settings.json", &claude_settings(base, model, plain)))
            p { "Or try it once, without changing a file:" }
            (copyable("Claude Code", &claude_code))
        }
        details { summary { "Cursor" }
            ol.steps {
                li { "Open " strong { "Cursor Settings › Models › API Keys" } "." }
                li { "Enter the key as " strong { "OpenAI API Key" } ", and turn on " strong { "Override OpenAI Base URL" } " with " code { (base) "/v1" } "." }
                li { "Add the model " code { (model) } " and turn it on." }
            }
            p.quiet { "Cursor sends requests from its own servers, so this address must be reachable from the internet." }
        }
        details { summary { "Open WebUI" } (copyable("Open WebUI", &open_webui(base, plain))) }
        details { summary { "LangChain" } (copyable("LangChain", &langchain)) }
        details { summary { "n8n" }
            ol.steps {
                li { "Create a credential of the type " strong { "OpenAI" } ": the key as " strong { "API Key" } ", and " code { (base) "/v1" } " as " strong { "Base URL" } "." }
                li { "In the node " strong { "OpenAI Chat Model" } ", choose this credential, set " strong { "Model" } " to " strong { "By ID" } ", and enter " code { (model) } "." }
            }
        }
    }
}

/// Returns the settings that make Codex use the gateway from now on.
fn codex_config(base: &str, model: &str) -> String {
    format!(
        "model = \"{model}\"\nmodel_provider = \"faregate\"\n\n[model_providers.faregate]\nname = \"Faregate\"\n\
         base_url = \"{base}/v1\"\nenv_key = \"{VARIABLE}\"\nwire_api = \"responses\""
    )
}

/// Returns the settings that make Claude Code use the gateway from now on.
fn claude_settings(base: &str, model: &str, key: &str) -> String {
    format!(
        "{{\n  \"env\": {{\n    \"ANTHROPIC_BASE_URL\": \"{base}\",\n    \"ANTHROPIC_API_KEY\": \"{key}\",\n    \
         \"ANTHROPIC_MODEL\": \"{model}\",\n    \"ANTHROPIC_SMALL_FAST_MODEL\": \"{model}\"\n  }}\n}}"
    )
}

/// Returns a command that starts Open WebUI with the gateway as its only connection.
fn open_webui(base: &str, key: &str) -> String {
    format!(
        "docker run -d -p 3000:8080 -v open-webui:/app/backend/data \\\n  \
         -e OPENAI_API_BASE_URL={base}/v1 -e OPENAI_API_KEY={key} \\\n  ghcr.io/open-webui/open-webui:main"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_model_is_in_every_text_and_an_unknown_one_in_none() {
        let models = ["Model Flash".to_owned(), "Model Max".to_owned()];
        let shown = |query: &str| {
            let query = Fields::of_query(Some(query));
            let address = PageAddress { path: "/use", query: &query };
            commands_of_known_key("https://fare.example", &models, address).into_string()
        };
        let max = shown("model=Model+Max");
        assert_eq!(max.matches("Model Max").count() - 1, shown("").matches("Model Flash").count() - 1);
        assert!(max.contains("<option value=\"Model Max\" selected>"), "{max}");
        assert!(
            shown("model=Nope").contains("model = &quot;Model Flash&quot;")
                && !shown("model=Nope").contains("Nope")
        );
    }

    #[test]
    fn files_of_tools_can_be_read_by_the_tools() {
        let settings = claude_settings("https://fare.example", "Model Flash", "fg_api_x");
        let settings: serde_json::Value = serde_json::from_str(&settings).unwrap();
        assert_eq!(settings["env"]["ANTHROPIC_API_KEY"], "fg_api_x");
        let config = codex_config("https://fare.example", "Model Flash");
        assert!(
            config.contains("\n[model_providers.faregate]\n") && config.contains("env_key = \"API_KEY\"")
        );
    }
}
