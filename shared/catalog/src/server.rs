//! How model servers describe themselves, and where that differs from the catalogue.

use http::Uri;
use serde::Deserialize;
use serde_json::Value;
use shared::text::shown;

use crate::{
    model::Model,
    upstream::{Upstream, UpstreamKind},
};

/// A longer name that a server reports is shown up to this number of characters.
const MAX_SHOWN_NAME: usize = 80;
/// Maximum number of names that are shown from a server's list.
const SHOWN_NAMES: usize = 5;
/// Tag that Ollama appends to a name that has no tag.
const OLLAMA_TAG: &str = ":latest";
/// Prefix that the names have in Gemini's list of models.
const GEMINI_FOLDER: &str = "models/";

/// The models of a server, and their context windows if the server reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerDescription {
    /// Models in the server's list; empty if it has no list.
    models: Vec<ServedModel>,
    /// The context window of every model, if the server reports one for all.
    window: Option<u64>,
}

/// A model in the list of a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct ServedModel {
    id: String,
    /// The context window in tokens, as vLLM and SGLang report it.
    #[serde(default)]
    max_model_len: Option<u64>,
    /// The context window in tokens, as reported by Anthropic, by several vendors of open models, and by Groq.
    #[serde(default)]
    max_input_tokens: Value,
    #[serde(default)]
    context_length: Value,
    #[serde(default)]
    context_window: Value,
    /// Owner of the model. In the lists of local servers, this is the name of their software.
    #[serde(default)]
    owned_by: Option<String>,
}

impl ServedModel {
    fn window(&self) -> Option<u64> {
        let named = [&self.max_input_tokens, &self.context_length, &self.context_window];
        let window = self.max_model_len.or_else(|| named.into_iter().find_map(Value::as_u64));
        window.filter(|window| *window > 0)
    }
}

/// Returns the address of a path below a base address. If both have a query, the base's comes first.
pub fn address_below(base: &Uri, path: &str) -> Option<Uri> {
    address_at(base, base.path().trim_end_matches('/'), path)
}

fn address_at(base: &Uri, folder: &str, path: &str) -> Option<Uri> {
    let (path, own) = path.split_once('?').map_or((path, None), |(path, own)| (path, Some(own)));
    let queries: Vec<&str> = base.query().into_iter().chain(own).collect();
    let query = if queries.is_empty() { String::new() } else { format!("?{}", queries.join("&")) };
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(format!("{folder}{path}{query}").parse().ok()?);
    Uri::from_parts(parts).ok()
}

impl ServerDescription {
    /// Returns the address at which a server of this kind describes itself. `None` for the built-in model, which needs
    /// no description.
    ///
    /// A server of llama.cpp has only one model, whatever name a request uses. It reports the model's context window at
    /// an address next to `/v1`.
    pub fn address(kind: UpstreamKind, base: &Uri) -> Option<Uri> {
        match kind {
            UpstreamKind::Openai
            | UpstreamKind::Anthropic
            | UpstreamKind::Vllm
            | UpstreamKind::Sglang
            | UpstreamKind::Ollama => Self::list_address(kind, base),
            UpstreamKind::LlamaCpp => {
                let path = base.path().trim_end_matches('/');
                address_at(base, path.strip_suffix("/v1").unwrap_or(path), "/props")
            }
            UpstreamKind::Builtin => None,
        }
    }

    /// Returns the address at which a server of this kind lists its models.
    pub fn list_address(kind: UpstreamKind, base: &Uri) -> Option<Uri> {
        // Anthropic's API lists only twenty models at a time unless a request asks for more.
        let path = if kind == UpstreamKind::Anthropic { "/models?limit=1000" } else { "/models" };
        address_below(base, path)
    }

    /// Reads the answer of a server of this kind; `None` if the answer does not describe models.
    pub fn read(kind: UpstreamKind, body: &[u8]) -> Option<Self> {
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
        Self::read_list(body)
    }

    pub fn read_list(body: &[u8]) -> Option<Self> {
        /// Together AI sends the list of models without an enclosing object.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum List {
            Object { data: Vec<ServedModel> },
            Bare(Vec<ServedModel>),
        }
        let (List::Object { data: models } | List::Bare(models)) = serde_json::from_slice(body).ok()?;
        Some(Self { models, window: None })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(|model| model.id.strip_prefix(GEMINI_FOLDER).unwrap_or(&model.id))
    }

    pub fn owner(&self) -> Option<&str> {
        self.models.iter().find_map(|model| model.owned_by.as_deref())
    }

    /// Returns the context window of this model, if the server reports it.
    pub fn window_of(&self, name: &str) -> Option<u64> {
        self.served(name).and_then(ServedModel::window).or(self.window)
    }

    /// Returns whether the server lists a model that requests may call by this name.
    pub fn has(&self, name: &str) -> bool {
        self.served(name).is_some()
    }

    fn served(&self, name: &str) -> Option<&ServedModel> {
        self.models.iter().find(|served| is_named(&served.id, name))
    }

    /// Returns a sentence for each thing that the catalogue promises about the model at this upstream and that the
    /// server does not offer.
    pub fn broken_promises(&self, model: &Model, upstream: &Upstream) -> Vec<String> {
        let mut broken = Vec::new();
        if self.served(&upstream.model).is_none() && !self.models.is_empty() {
            let listed = self.models.iter().take(SHOWN_NAMES);
            let listed: Vec<_> = listed.map(|m| format!("\"{}\"", shown(&m.id, MAX_SHOWN_NAME))).collect();
            let others = if self.models.len() > SHOWN_NAMES { " and others" } else { "" };
            broken
                .push(format!("the server does not list this model; it lists {}{others}", listed.join(", ")));
        }
        let window = self.window_of(&upstream.model);
        if let Some(window) = window.filter(|window| *window < model.context_window) {
            let promised = model.context_window;
            broken.push(format!(
                "context_window is {promised} here and {window} at the server; lower it, or start the server with a \
                 larger window"
            ));
            let most = model.max_output_tokens;
            if most > window {
                broken.push(format!(
                    "max_output_tokens is {most}, more than the server's window of {window}: a request without a limit is sent \
                     twice"
                ));
            }
        }
        broken
    }
}

/// Returns whether requests may use `name` for a model that a server lists as `listed`.
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
        // A server with an empty list makes no promise that could be broken.
        assert_eq!(broken(UpstreamKind::Openai, r#"{"data":[]}"#, "x", 10, 10), Vec::<String>::new());
    }

    #[test]
    fn a_catalogue_that_promises_more_is_told_what_the_server_has() {
        let window = broken(UpstreamKind::Vllm, VLLM, "qwen", 16384, 8192);
        assert_eq!(
            window,
            [
                "context_window is 16384 here and 8192 at the server; lower it, or start the server with a larger \
                 window"
            ]
        );
        assert_eq!(broken(UpstreamKind::Vllm, VLLM, "qwen", 131_072, 131_072).len(), 2);
        let props = r#"{"default_generation_settings":{"n_ctx":4096}}"#;
        assert_eq!(broken(UpstreamKind::LlamaCpp, props, "any", 16384, 4096).len(), 1);
        assert_eq!(
            broken(UpstreamKind::Vllm, VLLM, "Qwen", 8, 8),
            [r#"the server does not list this model; it lists "qwen", "lora""#]
        );
        let many = format!(r#"{{"data":[{}{{"id":"z\u001b"}}]}}"#, r#"{"id":"a"},"#.repeat(6));
        assert!(broken(UpstreamKind::Openai, &many, "x", 8, 8)[0].ends_with("and others"));
    }

    #[test]
    fn a_list_tells_names_as_requests_give_them_with_its_owner_and_windows() {
        let list = ServerDescription::read_list(VLLM.as_bytes()).unwrap();
        assert_eq!(list.names().collect::<Vec<_>>(), ["qwen", "lora"]);
        assert_eq!((list.window_of("qwen"), list.window_of("lora"), list.owner()), (Some(8192), None, None));
        let bare = r#"[{"id":"models/a","owned_by":"google","context_length":9}]"#;
        let list = ServerDescription::read_list(bare.as_bytes()).unwrap();
        assert_eq!((list.names().collect::<Vec<_>>(), list.owner()), (vec!["a"], Some("google")));
        assert_eq!(list.window_of("a"), Some(9));
        let vendors = r#"{"data":[{"id":"c","max_input_tokens":200000},{"id":"g","context_window":7},{"id":"n","context_length":"?"}]}"#;
        let list = ServerDescription::read_list(vendors.as_bytes()).unwrap();
        let windows = ["c", "g", "n", "other"].map(|name| list.window_of(name));
        assert_eq!(windows, [Some(200_000), Some(7), None, None]);
    }

    #[test]
    fn a_query_of_the_base_goes_with_every_address() {
        let address =
            |kind, base: &str| ServerDescription::address(kind, &base.parse().unwrap()).unwrap().to_string();
        assert_eq!(address(UpstreamKind::Openai, "https://a/v1?v=1"), "https://a/v1/models?v=1");
        assert_eq!(address(UpstreamKind::Anthropic, "https://a/v1"), "https://a/v1/models?limit=1000");
        assert_eq!(
            address(UpstreamKind::Anthropic, "https://a/v1?v=1"),
            "https://a/v1/models?v=1&limit=1000"
        );
        assert_eq!(address(UpstreamKind::LlamaCpp, "http://a:1/v1"), "http://a:1/props");
        assert_eq!(address(UpstreamKind::LlamaCpp, "http://a:1/x?k=1"), "http://a:1/x/props?k=1");
        assert_eq!(ServerDescription::address(UpstreamKind::Builtin, &"http://a".parse().unwrap()), None);
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
