//! Planned answer to a request in the Responses or Messages API: its length, its end and its usage.

use serde_json::{Map, Value};

use super::prompt::Prompt;
use crate::upstream::script::{Script, Told, Usage};

/// Placeholders for the script's verbatim usage, since parsing it as JSON would change its numbers.
const FIRST_USAGE: &str = "verbatim usage of the script, first";
const LAST_USAGE: &str = "verbatim usage of the script, last";

/// Prompt tokens that a cache stored for later requests, by the time for which they are kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheWrites {
    /// Kept for five minutes.
    pub short: u64,
    /// Kept for an hour.
    pub long: u64,
}

/// Why an answer ends before its script does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortened {
    /// By the request's limit.
    ByLimit,
    /// By the script's context window.
    ByWindow,
}

/// A tool that the answer calls.
#[derive(Clone, Debug)]
pub(crate) struct CalledTool {
    pub name: String,
    /// Whether its input is text, not JSON.
    pub custom: bool,
}

/// Planned generation for one request.
pub(crate) struct NativePlan {
    /// Script of the request.
    pub script: Script,
    /// The request.
    pub prompt: Prompt,
    /// Number of prompt tokens, including cached ones.
    pub prompt_tokens: u64,
    /// Prompt tokens that were written to a cache.
    pub writes: CacheWrites,
    /// Number of tokens in the answer.
    pub length: u64,
    /// Why the answer is shorter than the script.
    pub shortened: Option<Shortened>,
    /// Number of the answer; its ids are made from it.
    pub serial: u64,
}

/// Usage that an answer reports.
#[derive(Clone, Copy)]
pub(crate) enum Reported {
    /// No usage.
    Nothing,
    Counts(Usage),
    /// The script's own JSON. This placeholder represents it until [`NativePlan::text`] writes it.
    Verbatim(&'static str),
}

impl NativePlan {
    /// Returns the plan for a request with this script.
    pub(crate) fn new(prompt: Prompt, script: Script, writes: CacheWrites, serial: u64) -> Self {
        let prompt_tokens = prompt.tokens(&script);
        let wanted = script.lengths.first().map_or(script.length(), |own| script.length().min(*own));
        let limit = prompt.limit().filter(|_| !script.ignores_max_tokens).unwrap_or(u64::MAX);
        let window = script.context.map_or(u64::MAX, |context| context.saturating_sub(prompt_tokens));
        let length = wanted.min(limit).min(window);
        let shortened = (length < wanted).then_some(if limit <= window {
            Shortened::ByLimit
        } else {
            Shortened::ByWindow
        });
        Self { script, prompt, prompt_tokens, writes, length, shortened, serial }
    }

    /// Returns the true usage after this many generated tokens.
    pub(crate) fn served(&self, completion: u64) -> Usage {
        let cached = self.script.cached_tokens.min(self.prompt_tokens);
        Usage { prompt: self.prompt_tokens, cached, completion }
    }

    /// Returns the usage to report at the start of an answer, if the script reports it there.
    pub(crate) fn reported_first(&self) -> Reported {
        match &self.script.told {
            Told::Nothing | Told::Json { first: None, .. } => Reported::Nothing,
            Told::Json { first: Some(_), .. } => Reported::Verbatim(FIRST_USAGE),
            Told::Lie(usage) | Told::First(usage) => Reported::Counts(*usage),
            Told::Truth => Reported::Counts(self.served(self.length.min(1))),
        }
    }

    /// Returns the usage to report at the end of an answer of this many tokens.
    pub(crate) fn reported_last(&self, completion: u64) -> Reported {
        match &self.script.told {
            Told::Nothing => Reported::Nothing,
            Told::Json { .. } => Reported::Verbatim(LAST_USAGE),
            Told::Lie(usage) => Reported::Counts(*usage),
            Told::Truth | Told::First(_) => Reported::Counts(self.served(completion)),
        }
    }

    /// Returns the name of the model that answers.
    pub(crate) fn model(&self) -> &str {
        self.script.answers_as.as_deref().unwrap_or_else(|| self.prompt.model())
    }

    /// Returns the JSON text of a value, with the script's verbatim usage.
    pub(crate) fn text(&self, value: &Value) -> String {
        let text = value.to_string();
        match &self.script.told {
            Told::Json { first, last } => text
                .replace(&format!("\"{FIRST_USAGE}\""), first.as_deref().unwrap_or_default())
                .replace(&format!("\"{LAST_USAGE}\""), last),
            Told::Truth | Told::Nothing | Told::Lie(_) | Told::First(_) => text,
        }
    }

    /// Returns the number of reasoning tokens among the first `completion` tokens.
    pub(crate) fn reasoning(&self, completion: u64) -> u64 {
        self.script.reasoning_tokens.min(self.script.completion_tokens).min(completion)
    }

    /// Returns the tool for a call: the script's or, if it names none, `lookup`. If the request declares only other
    /// tools, they are used in turn.
    pub(crate) fn tool(&self, call: u64) -> CalledTool {
        let lookup = CalledTool { name: "lookup".into(), custom: false };
        let declared = self.prompt.body["tools"].as_array().into_iter().flatten();
        let own: Vec<CalledTool> = declared.filter_map(run_by_the_client).collect();
        if let Some(call) = self.script.call(call) {
            let custom = own.iter().any(|tool| tool.name == call.name && tool.custom);
            return CalledTool { name: call.name.clone(), custom };
        }
        if own.is_empty() || own.iter().any(|tool| tool.name == "lookup") {
            return lookup;
        }
        let turn = usize::try_from(call).expect("it is an index") % own.len();
        own.into_iter().nth(turn).unwrap_or(lookup)
    }

    /// Returns a member of the request, as answers repeat it; `or` if it is missing.
    pub(crate) fn echoed(&self, member: &str, or: Value) -> Value {
        self.prompt.body.get(member).filter(|value| !value.is_null()).cloned().unwrap_or(or)
    }
}

/// Returns the tool, if the client runs it and its input is a function's arguments or a text.
fn run_by_the_client(tool: &Value) -> Option<CalledTool> {
    let custom = match tool["type"].as_str() {
        None | Some("function") => false,
        Some("custom") => tool.get("input_schema").is_none(),
        Some(_) => return None,
    };
    Some(CalledTool { name: tool["name"].as_str()?.to_owned(), custom })
}

/// Returns an object with these members. Members that are `None` are left out.
pub(crate) fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}
