//! `faregate init` writes a first catalogue, with a stand-in for every vendor, and in a dialogue with a person at a
//! terminal.

mod dialogue;
mod failures;
mod vendors;

use std::{fs, path::Path};

use http::{Method, Uri};
use serde_json::json;
use shared_catalog::{Catalog, Model, Preset, UpstreamKind};
use tempfile::TempDir;
use tests::harness::{AskedOf, Given, Settings, StandIn};

/// Credential of every vendor. It must not be in any output or file.
const KEY: &str = "sk-init-secret-0123456789";
/// Flags for a price: 3 USD per million prompt tokens, and 15 USD per million output tokens.
const PRICE: [&str; 2] = ["--price", "input=3,output=15"];
/// Cost of the stand-ins' generation: 13 × 3 + 5 × 15 millionths of a USD.
const COST: &str = "checked: 13 prompt tokens and 5 output tokens cost 0.000114 USD";

/// A price list in LiteLLM's format, with one model that two vendors offer.
const LIST: &str = r#"{
    "lark": {"litellm_provider": "openai", "input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05,
        "cache_read_input_token_cost": 3e-07, "max_input_tokens": 400000, "max_output_tokens": 128000, "mode": "chat"},
    "groq/lark": {"litellm_provider": "groq", "input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06,
        "max_input_tokens": 131072, "max_output_tokens": 131072, "mode": "chat"}
}"#;

/// An empty folder in which `faregate` runs.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path().join(name)).ok()
    }

    /// Returns the names of all files, including drafts.
    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.path()).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Runs the command. Returns its output or its error, and asserts that neither contains the credential.
    fn init(&self, env: &[(&'static str, &str)], flags: &[&str]) -> Result<String, String> {
        let env = env.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let words = [&["init"], flags].concat();
        // The harness sets a key for upstreams, which a vendor's command does not need.
        let (status, printed, error) = Settings::all_in_one(self.path(), env).try_cli(&words);
        assert!(!printed.contains(KEY) && !error.contains(KEY), "{printed}{error}");
        if status.success() { Ok(printed) } else { Err(error) }
    }

    /// Returns the only model in a catalogue that the check accepts.
    fn model(&self, name: &str) -> Model {
        let text = self.file(name).unwrap();
        assert!(!text.contains(KEY), "{text}");
        let settings = Settings::all_in_one(self.path(), Vec::new());
        let printed = settings.cli(&["--models", name, "catalogue", "check"]);
        assert!(printed.contains("no fault (models: 1)"), "{printed}");
        Catalog::parse(&text, name).unwrap().models.remove(0)
    }
}

/// Starts a stand-in for a vendor that lists models and generates answers for callers with this header.
async fn vendor(header: &'static str, value: &'static str) -> StandIn {
    StandIn::start(move |asked| {
        if asked.header(header) != value {
            let message = format!("Incorrect API key provided: {}.", asked.header(header));
            return (401, json!({"error": {"message": message}}).to_string());
        }
        answer(asked)
    })
    .await
}

/// Returns a list of models, or a generation with usage in the format of the API.
fn answer(asked: &AskedOf) -> Given {
    let path = asked.path.split('?').next().unwrap();
    if asked.method == Method::GET && path.ends_with("/models") {
        let models = ["lark", "lark-mini", "wren"].map(|id| json!({"id": id, "object": "model"}));
        return (200, json!({"object": "list", "data": models}).to_string());
    }
    let usage = match path.rsplit('/').next().unwrap() {
        "completions" => json!({"prompt_tokens": 13, "completion_tokens": 5, "total_tokens": 18}),
        "responses" | "messages" => json!({"input_tokens": 13, "output_tokens": 5}),
        _ => return (404, r#"{"detail":"Not Found"}"#.to_owned()),
    };
    (200, json!({"id": "x", "usage": usage}).to_string())
}

/// Returns the header that a vendor demands, and its value.
fn credential(preset: &Preset) -> (&'static str, &'static str) {
    match (preset.is_local(), preset.name.as_str()) {
        (true, _) => ("authorization", ""),
        (false, "anthropic") => ("x-api-key", KEY),
        (false, "azure") => ("api-key", KEY),
        (false, _) => ("authorization", "Bearer sk-init-secret-0123456789"),
    }
}

#[apply(fact)]
async fn every_preset_is_asked_for_its_models_and_checked_and_written_as_a_catalogue() {
    let folder = Folder::new();
    for preset in Preset::all().unwrap() {
        let Preset { name, kind, .. } = &preset;
        let (header, value) = credential(&preset);
        let stand_in = vendor(header, value).await;
        let path = preset.url.parse::<Uri>().unwrap().path().to_owned();
        let (address, out) = (stand_in.url(&path), format!("{name}.toml"));
        let flags = ["--vendor", name, "--address", &address, "--model", "lark", "--out", &out, "--check"];
        // The process sees only the variable that the preset names.
        let variable: Option<&'static str> = preset.api_key_env.clone().map(|name| &*name.leak());
        let env: Vec<_> = variable.map(|variable| (variable, KEY)).into_iter().collect();
        let printed =
            folder.init(&env, &[&flags[..], &PRICE].concat()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(
            printed.contains(COST) && printed.ends_with(&format!("  faregate --models {out}\n")),
            "{printed}"
        );

        let asked = stand_in.asked();
        let query = if *kind == UpstreamKind::Anthropic { "?limit=1000" } else { "" };
        assert_eq!(asked[0].path, format!("{path}/models{query}"), "{name}");
        let generation = asked.last().unwrap();
        let generations = asked.iter().filter(|asked| asked.method == Method::POST).count();
        assert_eq!(generations, 1, "{name} is asked for one generation");
        let written = folder.file(&out).unwrap();
        let (api, limit) = match (*kind, name.as_str()) {
            (UpstreamKind::Anthropic, _) => ("/messages", "max_tokens"),
            (_, "openai" | "azure") => ("/responses", "max_output_tokens"),
            _ if written.contains("max_completion_tokens") => ("/chat/completions", "max_completion_tokens"),
            _ => ("/chat/completions", "max_tokens"),
        };
        assert_eq!(generation.path, format!("{path}{api}"), "{name}");
        assert_eq!((&generation.json()["model"], &generation.json()[limit]), (&json!("lark"), &json!(16)));
        let is_dated = *kind == UpstreamKind::Anthropic || name == "openrouter";
        assert_eq!(generation.header("anthropic-version") == "2023-06-01", is_dated, "{name}");

        let model = folder.model(&out);
        let upstream = &model.upstreams[0];
        assert_eq!((model.id.as_str(), upstream.model.as_str(), upstream.kind), ("lark", "lark", *kind));
        assert_eq!(upstream.url.as_ref().unwrap().to_string(), address);
        assert_eq!(
            variable.is_some(),
            written.contains(&format!("api_key_env = \"{}\"", variable.unwrap_or("-")))
        );
    }
}

#[apply(fact)]
async fn a_local_server_is_recognised_by_its_list_and_its_window_is_the_models() {
    let folder = Folder::new();
    for (owner, kind, window) in [
        ("vllm", UpstreamKind::Vllm, 8_192),
        ("sglang", UpstreamKind::Sglang, 8_192),
        ("llamacpp", UpstreamKind::LlamaCpp, 4_096),
        ("library", UpstreamKind::Ollama, 4_096),
        ("someone", UpstreamKind::Openai, 32_768),
    ] {
        let stand_in = StandIn::start(move |asked| match asked.path.as_str() {
            "/v1/models" => {
                let tells_window = ["vllm", "sglang"].contains(&owner);
                let model =
                    json!({"id": "qwen", "owned_by": owner, "max_model_len": tells_window.then_some(8_192)});
                (200, json!({"object": "list", "data": [model]}).to_string())
            }
            "/props" => (200, json!({"default_generation_settings": {"n_ctx": 4_096}}).to_string()),
            _ => (404, String::new()),
        })
        .await;
        let (address, out) = (stand_in.url("/v1"), format!("{owner}.toml"));
        let flags = ["--address", &address, "--model", "qwen", "--free", "--out", &out];
        let printed = folder.init(&[], &flags).unwrap();
        let model = folder.model(&out);
        assert_eq!((model.upstreams[0].kind, model.context_window), (kind, window), "{printed}");
        assert!(model.max_output_tokens * 2 <= window, "{printed}");
        assert_eq!(printed.contains("is a guess"), owner == "someone", "{printed}");
        assert_eq!(model.price.base.output, shared::money::NanoUsd::ZERO);
        // A promised size that exceeds the server's is refused, and the refusal gives the server's number.
        if kind == UpstreamKind::Vllm {
            let more = [&flags[..5], &["--context-window", "8193", "--out", "more.toml"]].concat();
            assert!(folder.init(&[], &more).unwrap_err().contains("is 8192 tokens"));
            assert!(folder.file("more.toml").is_none());
        }
    }
}

#[apply(fact)]
async fn prices_and_windows_come_from_the_list_that_is_named() {
    let folder = Folder::new();
    fs::write(folder.path().join("prices.json"), LIST).unwrap();
    let dev = "[cost]\ninput = 2\noutput = 8\n[[cost.tiers]]\ntier = { size = 1000 }\ninput = 4\noutput = 8\n[limit]\ncontext = 9000\noutput = 900\n";
    fs::write(folder.path().join("lark.toml"), dev).unwrap();
    let stand_in = vendor("authorization", "Bearer sk-init-secret-0123456789").await;
    let address = stand_in.url("/v1");
    let write = |name: &str, variable: &'static str, list: &str| {
        let out = format!("{name}-{}.toml", list.len());
        let flags =
            ["--vendor", name, "--address", &address, "--model", "lark", "--prices", list, "--out", &out];
        folder.init(&[(variable, KEY)], &flags).unwrap();
        folder.model(&out)
    };
    let nanos =
        |model: &Model| model.price.base.to_array()[..3].iter().map(|rate| rate.nanos()).collect::<Vec<_>>();
    let openai = write("openai", "OPENAI_API_KEY", "prices.json");
    assert_eq!(nanos(&openai), [3_000_000_000, 300_000_000, 15_000_000_000]);
    assert_eq!((openai.context_window, openai.max_output_tokens), (400_000, 128_000));
    // The same model costs something else at another vendor. The longest answer leaves room in the window for a prompt.
    let groq = write("groq", "GROQ_API_KEY", "prices.json");
    assert_eq!(nanos(&groq), [1_000_000_000, 1_000_000_000, 2_000_000_000]);
    assert_eq!((groq.context_window, groq.max_output_tokens), (131_072, 65_536));
    let dev = write("mistral", "MISTRAL_API_KEY", "lark.toml");
    assert_eq!((nanos(&dev)[0], dev.price.tiers[0].above, dev.context_window), (2_000_000_000, 1_000, 9_000));
}
