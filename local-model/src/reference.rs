//! Prompts and answers of PyTorch, which `tests/reference.py` recorded.

use serde::Deserialize;
use serde_json::Value;

use crate::{
    model::Model,
    prompt::{self, Message, Tool},
};

pub(crate) struct Case {
    pub(crate) prompt: String,
    pub(crate) prompt_tokens: usize,
    pub(crate) answer_tokens: Vec<u32>,
    /// Prompt as this program encodes it.
    pub(crate) prompt_ids: Vec<u32>,
}

#[derive(Deserialize)]
struct Recorded {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Value>,
    prompt: String,
    prompt_tokens: usize,
    answer_tokens: Vec<u32>,
}

pub(crate) fn cases() -> Vec<Case> {
    let Model { tokenizer, .. } = Model::shipped().unwrap();
    let recorded: Vec<Recorded> = serde_json::from_str(include_str!("../tests/reference.json")).unwrap();
    let case = |Recorded { messages, tools, prompt, prompt_tokens, answer_tokens }| {
        let tool = |tool: &Value| Tool {
            index: 0,
            name: tool["function"]["name"].as_str().unwrap().to_owned(),
            description: tool["function"]["description"].as_str().map(str::to_owned),
            parameters: tool["function"]["parameters"].clone(),
        };
        let tools: Vec<Tool> = tools.iter().map(tool).collect();
        let prompt_ids = prompt::encode(&tokenizer, 2048, &messages, &tools).unwrap();
        Case { prompt, prompt_tokens, answer_tokens, prompt_ids }
    };
    recorded.into_iter().map(case).collect()
}
