//! Models in Codex's own form, as in `model_catalog_json` of its configuration.

use schemars::JsonSchema;
use serde::Serialize;
use shared_catalog::{Effort, Model};

/// Query parameter with which Codex requests its own form of the list.
const CLIENT_VERSION: &str = "client_version";

/// Codex's instructions to the model. Codex has no instructions of its own for a model from a list.
const INSTRUCTIONS: &str = "You are Codex, a coding agent in a terminal on the user's computer. Work on the user's task with \
    the tools that you are given: read before you change, keep changes small, and run what shows that they work. Go on \
    until the task is done. Then say in a few sentences what you did, and what is left.";

/// Maximum number of tokens from a tool's output that Codex passes on: the same as for its own models.
const TOOL_OUTPUT_TOKENS: u64 = 10_000;

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CodexModels")]
pub(in super::super) struct CodexModels<'a> {
    models: Vec<CodexModel<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CodexModel")]
struct CodexModel<'a> {
    /// The name to use in requests.
    slug: &'a str,
    display_name: &'a str,
    context_window: u64,
    /// Reasoning efforts that the model accepts.
    supported_reasoning_levels: Vec<ReasoningLevel>,
    /// Position in the list.
    priority: usize,
    #[schemars(extend("const" = "list"))]
    visibility: &'static str,
    supported_in_api: bool,
    #[schemars(extend("const" = "shell_command"))]
    shell_type: &'static str,
    support_verbosity: bool,
    supports_parallel_tool_calls: bool,
    truncation_policy: TruncationPolicy,
    experimental_supported_tools: [&'static str; 0],
    base_instructions: &'static str,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CodexReasoningLevel")]
struct ReasoningLevel {
    effort: &'static str,
    description: &'static str,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "CodexTruncationPolicy")]
struct TruncationPolicy {
    #[schemars(extend("const" = "tokens"))]
    mode: &'static str,
    limit: u64,
}

impl<'a> CodexModels<'a> {
    /// Lists the models that can chat.
    pub(in super::super) fn new(models: impl Iterator<Item = &'a Model>) -> Self {
        let models = models.filter(|model| model.serves.chat).enumerate();
        Self { models: models.map(|(place, model)| CodexModel::new(place, model)).collect() }
    }
}

impl<'a> CodexModel<'a> {
    fn new(priority: usize, model: &'a Model) -> Self {
        let level = |effort: &Effort| ReasoningLevel { effort: effort.word(), description: "" };
        Self {
            slug: &model.id,
            display_name: &model.id,
            context_window: model.context_window,
            supported_reasoning_levels: model.efforts.iter().map(level).collect(),
            priority,
            visibility: "list",
            supported_in_api: true,
            shell_type: "shell_command",
            support_verbosity: false,
            supports_parallel_tool_calls: true,
            truncation_policy: TruncationPolicy { mode: "tokens", limit: TOOL_OUTPUT_TOKENS },
            experimental_supported_tools: [],
            base_instructions: INSTRUCTIONS,
        }
    }
}

/// Returns whether a query requests Codex's form.
pub(in super::super) fn asks_for_codex(query: Option<&str>) -> bool {
    form_urlencoded::parse(query.unwrap_or_default().as_bytes()).any(|(name, _)| name == CLIENT_VERSION)
}
