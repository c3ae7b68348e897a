//! Commands that run coding agents through a gateway, for the output of a first run and for the dashboard.

/// Environment variable with the API key, which the commands use.
pub const VARIABLE: &str = "API_KEY";

/// Returns a command that runs Codex through the gateway at this address, without changing its configuration.
pub fn codex(base: &str, model: &str) -> String {
    format!(
        "codex exec --skip-git-repo-check -m '{model}' -c model_provider=faregate \\\n  \
         -c 'model_providers.faregate={{name=\"Faregate\",base_url=\"{base}/v1\",env_key=\"{VARIABLE}\",wire_api=\"responses\"}}' \
         'What is an API key?'"
    )
}

/// Returns a command that runs Claude Code through the gateway at this address.
pub fn claude_code(base: &str, model: &str) -> String {
    format!(
        "ANTHROPIC_BASE_URL={base} ANTHROPIC_API_KEY=${VARIABLE} ANTHROPIC_MODEL='{model}' \\\n  \
         ANTHROPIC_SMALL_FAST_MODEL='{model}' claude -p 'What is an API key?'"
    )
}
