//! Constrained decoding: a grammar of the allowed answers masks every other token.
//!
//! However small the model is, the grammar guarantees names of tools and arguments, types, and JSON of a schema.

mod schema;

use std::sync::Arc;

use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie},
};
use serde_json::Value;
use shared::error::ApiError;

use crate::{
    prompt::Tool,
    tokenizer::{CALL_BEGIN, CALL_END, END_OF_TEXT, FIRST_TEXT, TURN_END, Tokenizer},
};

pub(crate) struct GrammarCompiler(ParserFactory);

/// Grammar of an answer, and the answer's place in the grammar.
pub(crate) struct Constraint {
    matcher: Matcher,
    /// True until a tool call begins, if the text before is free.
    is_free: bool,
}

impl GrammarCompiler {
    pub(crate) fn new(tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        let size = u32::try_from(tokenizer.bytes.len())?;
        // In the library's spelling, a special token begins with a byte that no text has.
        let mark = |token| if token < FIRST_TEXT { &[TokTrie::SPECIAL_TOKEN_MARKER][..] } else { &[] };
        let words = (0..).zip(&tokenizer.bytes).map(|(token, bytes)| [mark(token), bytes].concat());
        let words: Vec<Vec<u8>> = words.collect();
        let tokens = TokTrie::from(&TokRxInfo::new(size, END_OF_TEXT), &words);
        let tokens = ApproximateTokEnv::new(tokens.with_eos_tokens(&[END_OF_TEXT, TURN_END]));
        let tokens: TokEnv = Arc::new(tokens);
        let mut parsers = ParserFactory::new_simple(&tokens)?;
        parsers.quiet();
        let limits = parsers.limits_mut();
        // In the library's unit of work: some 10 ms before the first token, and some 4 ms for each, in which others
        // wait.
        (limits.initial_lexer_fuel, limits.step_lexer_fuel) = (500_000, 50_000);
        // States take 1 to 2 kB each. Schemas have fewer symbols, unless they count far.
        (limits.max_lexer_states, limits.max_grammar_size) = (10_000, 100_000);
        // Errors are for clients. They name the fault, but no internals of the library.
        limits.verbose_errors = false;
        Ok(Self(parsers))
    }

    /// Compiles the form of an answer, which may call `tools` or be JSON of `schema`. `None` if everything is allowed.
    pub(crate) fn compile(
        &self,
        tools: &[Tool],
        required: bool,
        parallel: bool,
        schema: Option<&Value>,
    ) -> Result<Option<Constraint>, ApiError> {
        if tools.is_empty() && schema.is_none() {
            return Ok(None);
        }
        let mut matcher = Matcher::new(self.0.create_parser(grammar(tools, parallel, schema)?));
        // Some schemas fail only at the first token.
        matcher.compute_mask().map_err(|error| unfollowed(&error))?;
        Ok(Some(Constraint { matcher, is_free: schema.is_none() && !required }))
    }
}

/// Writes the grammar in the library's language. A tool call is a JSON object on a separate line between two special tokens.
fn grammar(tools: &[Tool], parallel: bool, schema: Option<&Value>) -> Result<TopLevelGrammar, ApiError> {
    let (mut answers, mut rules) = (Vec::new(), String::new());
    if let Some(schema) = schema {
        answers.push(format!("%json {}", schema::prepared(schema)?));
    }
    if !tools.is_empty() {
        let call = |Tool { function }: &Tool| {
            let head = format!("{{\"name\": {}, \"arguments\": ", Value::from(function.name.as_str()));
            let arguments = schema::of_arguments(function.parameters.as_ref())?;
            Ok(format!("{} %json {arguments}", Value::from(head)))
        };
        let calls = tools.iter().map(call).collect::<Result<Vec<_>, ApiError>>()?.join(" | ");
        let more = if parallel { "(\"\\n\"? call)*" } else { "" };
        answers.push("calls".to_owned());
        rules = format!(
            "calls: call {more}\ncall: <[{CALL_BEGIN}]> \"\\n\" ({calls}) \"}}\\n\" <[{CALL_END}]>\n"
        );
    }
    Ok(TopLevelGrammar::from_lark(format!("start: {}\n{rules}", answers.join(" | "))))
}

impl Constraint {
    /// Makes every token impossible that would leave the grammar. Fails if the grammar needs more than the allowed work
    /// for a token, or allows no token.
    pub(crate) fn mask(&mut self, logits: &mut [f32]) -> Result<(), ApiError> {
        if self.is_free {
            return Ok(());
        }
        let allowed = self.matcher.compute_mask_or_eos().map_err(|error| unfollowed(&error))?;
        for (token, logit) in (0..).zip(logits) {
            if !allowed.is_allowed(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    /// Advances the grammar by a token that does not end the answer.
    pub(crate) fn advance(&mut self, token: u32) -> Result<(), ApiError> {
        if self.is_free && token != CALL_BEGIN {
            return Ok(());
        }
        self.is_free = false;
        self.matcher.consume_token(token).map_err(|error| unfollowed(&error))
    }

    /// Returns whether the answer is complete, so that no token may follow.
    pub(crate) fn is_complete(&self) -> bool {
        !self.is_free && self.matcher.is_stopped()
    }
}

/// Makes an error of the first line of the library's error, without further details.
fn unfollowed(error: &impl ToString) -> ApiError {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default().trim_end_matches(['.', ':']);
    // The library gives only a name if the grammar allows nothing.
    schema::unsupported(if line.contains(' ') { line } else { "nothing that can be written fits it" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_free_until_a_call_begins() {
        let tokenizer = Tokenizer::shipped().unwrap();
        let compiler = GrammarCompiler::new(&tokenizer).unwrap();
        let tools: Vec<Tool> =
            serde_json::from_value(json!([{"function": {"name": "ping", "parameters": {}}}])).unwrap();
        let takes = |parallel, text: &str| {
            let mut constraint = compiler.compile(&tools, false, parallel, None).unwrap().unwrap();
            tokenizer.encode(text).into_iter().all(|token| {
                let mut logits = vec![0.0; tokenizer.bytes.len()];
                constraint.mask(&mut logits).unwrap();
                logits[token as usize] == 0.0 && constraint.advance(token).is_ok()
            })
        };
        let call = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
        assert!(takes(true, &format!("Anything at all. {call}{call}\n{call}")));
        assert!(!takes(true, "Well: <tool_call>\n{\"name\": \"pong\""));
        assert!(!takes(true, &format!("{call} and then some")));
        assert!(!takes(false, &format!("{call}{call}")));
    }
}
