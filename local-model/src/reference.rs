//! The answers that PyTorch gives, which `tests/reference.py` wrote down.

use minijinja::Value;
use serde::Deserialize;

use crate::prompt::Conversation;

pub(crate) struct Case {
    pub(crate) conversation: Conversation,
    pub(crate) prompt: String,
    pub(crate) prompt_tokens: usize,
    pub(crate) answer_tokens: Vec<u32>,
}

#[derive(Deserialize)]
struct Recorded {
    messages: Value,
    tools: Option<Value>,
    reasoning_effort: Option<String>,
    prompt: String,
    prompt_tokens: usize,
    answer_tokens: Vec<u32>,
}

pub(crate) fn cases() -> Vec<Case> {
    let recorded: Vec<Recorded> = serde_json::from_str(include_str!("../tests/reference.json")).unwrap();
    let case = |recorded: Recorded| Case {
        conversation: Conversation {
            messages: recorded.messages,
            tools: recorded.tools,
            reasoning_effort: recorded.reasoning_effort,
        },
        prompt: recorded.prompt,
        prompt_tokens: recorded.prompt_tokens,
        answer_tokens: recorded.answer_tokens,
    };
    recorded.into_iter().map(case).collect()
}
