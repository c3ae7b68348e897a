//! Descriptions that model servers give of themselves, compared with the catalogue.

use serde::Deserialize;

use super::{Model, Upstream, UpstreamKind};
use crate::text::shown;

/// Characters of a name that a server tells.
const MAX_SHOWN_NAME: usize = 80;
/// Names that a finding repeats of those that a server lists.
const SHOWN_NAMES: usize = 5;
/// Tag that Ollama adds to a name without one.
const OLLAMA_TAG: &str = ":latest";
/// Folder in which Gemini's API lists its models.
const GEMINI_FOLDER: &str = "models/";

/// Models and windows of a server, where it tells them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerDescription {
    /// Models that it lists. Empty where it lists none.
    models: Vec<ServedModel>,
    /// Window of all its requests, whatever the model.
    window: Option<u64>,
}

/// A model in a server's list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct ServedModel {
    id: String,
    /// Tokens of prompt and output together, as vLLM and SGLang tell them.
    #[serde(default)]
    max_model_len: Option<u64>,
}

impl ServerDescription {
    /// Path, below the base address, that a kind of server describes itself at, and true if the path is not below `/v1`;
    /// `None` for the built-in model, which is as its catalogue says.
    ///
    /// llama.cpp's server has one model, whatever a request calls it.
    pub const fn path(kind: UpstreamKind) -> Option<(&'static str, bool)> {
        match kind {
            UpstreamKind::Openai
            | UpstreamKind::Anthropic
            | UpstreamKind::Vllm
            | UpstreamKind::Sglang
            | UpstreamKind::Ollama => Some(("/models", false)),
            UpstreamKind::LlamaCpp => Some(("/props", true)),
            UpstreamKind::Builtin => None,
        }
    }

    /// Reads the answer of a kind of server; `None` if it says nothing of models.
    pub fn read(kind: UpstreamKind, body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct List {
            data: Vec<ServedModel>,
        }
        #[derive(Deserialize)]
        struct Props {
            default_generation_settings: Settings,
        }
        #[derive(Deserialize)]
        struct Settings {
            n_ctx: u64,
        }
        if kind == UpstreamKind::LlamaCpp {
            let props: Props = serde_json::from_slice(body).ok()?;
            let window = props.default_generation_settings.n_ctx;
            return Some(Self { models: Vec::new(), window: Some(window).filter(|window| *window > 0) });
        }
        let List { data: models } = serde_json::from_slice(body).ok()?;
        Some(Self { models, window: None })
    }

    /// Sentences about what the catalogue promises of an upstream and the server does not have.
    pub fn broken_promises(&self, model: &Model, upstream: &Upstream) -> Vec<String> {
        let served = self.models.iter().find(|served| is_named(&served.id, &upstream.model));
        let mut broken = Vec::new();
        if served.is_none() && !self.models.is_empty() {
            let listed = self.models.iter().take(SHOWN_NAMES);
            let listed: Vec<_> = listed.map(|m| format!("\"{}\"", shown(&m.id, MAX_SHOWN_NAME))).collect();
            let others = if self.models.len() > SHOWN_NAMES { " and others" } else { "" };
            broken.push(format!("the server does not list it, but {}{others}", listed.join(", ")));
        }
        let window = served.and_then(|served| served.max_model_len).or(self.window);
        if let Some(window) = window.filter(|window| *window < model.context_window) {
            let promised = model.context_window;
            broken.push(format!(
                "context_window is {promised} here and {window} at the server; lower it, or start the server with more"
            ));
            let most = model.max_output_tokens;
            if most > window {
                broken.push(format!(
                    "max_output_tokens is {most}, more than the server's window of {window}: a request that names no limit is sent \
                     twice"
                ));
            }
        }
        broken
    }
}

/// Returns whether a name in a server's list is the name that requests give.
fn is_named(listed: &str, name: &str) -> bool {
    [Some(listed), listed.strip_suffix(OLLAMA_TAG), listed.strip_prefix(GEMINI_FOLDER)].contains(&Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    const VLLM: &str =
        r#"{"object":"list","data":[{"id":"qwen","object":"model","max_model_len":8192},{"id":"lora"}]}"#;

    fn broken(kind: UpstreamKind, answer: &str, name: &str, window: u64, most: u64) -> Vec<String> {
        let text = format!(
            "[service]\nname = \"f\"\nprovider = \"f\"\ndocs = \"f\"\n[[model]]\nid = \"m\"\nowned_by = \"o\"\ncontext_window = {window}\n\
             max_output_tokens = {most}\n[model.price]\ninput = \"1\"\ncached_input = \"1\"\noutput = \"1\"\n[[model.upstream]]\n\
             kind = \"vllm\"\nurl = \"http://a/v1\"\nmodel = \"{name}\"\n"
        );
        let model = Catalog::parse(&text, "m").unwrap().models.remove(0);
        let description = ServerDescription::read(kind, answer.as_bytes()).unwrap();
        description.broken_promises(&model, &model.upstreams[0])
    }

    #[test]
    fn a_catalogue_that_promises_no_more_than_the_server_has_breaks_nothing() {
        assert_eq!(broken(UpstreamKind::Vllm, VLLM, "qwen", 8192, 8192), Vec::<String>::new());
        assert_eq!(broken(UpstreamKind::Vllm, VLLM, "lora", 1 << 20, 1), Vec::<String>::new());
        let ollama = r#"{"object":"list","data":[{"id":"qwen3:latest"},{"id":"qwen3:4b"}]}"#;
        for name in ["qwen3", "qwen3:latest", "qwen3:4b"] {
            assert_eq!(broken(UpstreamKind::Ollama, ollama, name, 4096, 4096), Vec::<String>::new());
        }
        let props = r#"{"default_generation_settings":{"n_ctx":4096,"params":{}},"total_slots":4}"#;
        assert_eq!(broken(UpstreamKind::LlamaCpp, props, "any", 4096, 2048), Vec::<String>::new());
        let gemini = r#"{"object":"list","data":[{"id":"models/gemini-x"}]}"#;
        assert_eq!(broken(UpstreamKind::Openai, gemini, "gemini-x", 10, 10), Vec::<String>::new());
        // A server that lists nothing promises nothing.
        assert_eq!(broken(UpstreamKind::Openai, r#"{"data":[]}"#, "x", 10, 10), Vec::<String>::new());
    }

    #[test]
    fn a_catalogue_that_promises_more_is_told_what_the_server_has() {
        let window = broken(UpstreamKind::Vllm, VLLM, "qwen", 16384, 8192);
        assert_eq!(
            window,
            ["context_window is 16384 here and 8192 at the server; lower it, or start the server with more"]
        );
        assert_eq!(broken(UpstreamKind::Vllm, VLLM, "qwen", 131_072, 131_072).len(), 2);
        let props = r#"{"default_generation_settings":{"n_ctx":4096}}"#;
        assert_eq!(broken(UpstreamKind::LlamaCpp, props, "any", 16384, 4096).len(), 1);
        assert_eq!(
            broken(UpstreamKind::Vllm, VLLM, "Qwen", 8, 8),
            [r#"the server does not list it, but "qwen", "lora""#]
        );
        let many = format!(r#"{{"data":[{}{{"id":"z\u001b"}}]}}"#, r#"{"id":"a"},"#.repeat(6));
        assert!(broken(UpstreamKind::Openai, &many, "x", 8, 8)[0].ends_with("and others"));
    }

    #[test]
    fn what_is_no_description_is_none() {
        for body in ["", "{}", "<html>", r#"{"data":1}"#, r#"{"default_generation_settings":{"n_ctx":-1}}"#] {
            for kind in [UpstreamKind::Openai, UpstreamKind::LlamaCpp] {
                assert_eq!(ServerDescription::read(kind, body.as_bytes()), None, "{body}");
            }
        }
    }
}
