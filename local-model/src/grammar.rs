//! Constrained decoding: a grammar of the allowed answers, which masks every other token.
//!
//! The grammar makes names of tools and arguments, types, and JSON of a schema certain, however small the model is. An answer that
//! reaches `max_tokens` or the end of the context is cut.

mod schema;

use std::{fmt::Write, sync::Arc};

use llguidance::{
    Matcher, ParserFactory,
    api::{GrammarWithLexer, TopLevelGrammar},
    toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie},
};
use serde_json::Value;

use crate::{prompt::Tool, tokenizer::Tokenizer};

/// Work on the patterns of a grammar before its first token, in the library's unit: some 10 ms.
const COMPILE_FUEL: u64 = 500_000;
/// Work on a token, in the library's unit: some 4 ms, during which the other requests wait.
const TOKEN_FUEL: u64 = 50_000;
/// Lexer states of a request, at 1 to 2 kB each.
const MAX_STATES: usize = 10_000;
/// Symbols of a grammar. A schema of [`MAX_SCHEMA_BYTES`] has fewer, unless the schema counts far.
const MAX_SYMBOLS: usize = 100_000;
/// Bytes of all schemas of a request together. Larger schemas would not fit the prompt of a small model either.
pub(crate) const MAX_SCHEMA_BYTES: usize = 128 << 10;

/// Form that a request asks of answers.
#[derive(Default)]
pub(crate) struct OutputFormat {
    /// Tools that may be called.
    pub(crate) tools: Vec<Tool>,
    /// True if the answer has to be a tool call.
    pub(crate) required: bool,
    /// True if there may be several tool calls.
    pub(crate) parallel: bool,
    /// JSON schema of a text that has to be JSON.
    pub(crate) schema: Option<Value>,
}

/// Compiles output formats into constraints.
pub(crate) struct GrammarCompiler {
    parsers: ParserFactory,
    call_begin: u32,
    call_end: u32,
}

/// Grammar of an answer, and the answer's place in the grammar.
#[derive(Clone)]
pub(crate) struct Constraint {
    matcher: Matcher,
    /// Token that begins a tool call, until which the text is free.
    free_until: Option<u32>,
}

/// Reason for which a schema cannot be followed.
#[derive(Debug)]
pub(crate) struct SchemaError(pub(crate) String);

impl GrammarCompiler {
    pub(crate) fn new(tokenizer: &Tokenizer) -> anyhow::Result<Self> {
        let size = u32::try_from(tokenizer.len())?;
        let words: Vec<Vec<u8>> = (0..size).map(|token| word(tokenizer, token)).collect();
        let ends = [tokenizer.end_of_text, tokenizer.turn_end];
        let tokens = TokTrie::from(&TokRxInfo::new(size, ends[0]), &words).with_eos_tokens(&ends);
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(tokens));
        let mut parsers = ParserFactory::new_simple(&tokens)?;
        parsers.quiet();
        let limits = parsers.limits_mut();
        limits.initial_lexer_fuel = COMPILE_FUEL;
        limits.step_lexer_fuel = TOKEN_FUEL;
        limits.max_lexer_states = MAX_STATES;
        limits.max_grammar_size = MAX_SYMBOLS;
        // Errors are for clients, and name the fault without the library's insides.
        limits.verbose_errors = false;
        Ok(Self { parsers, call_begin: tokenizer.call_begin, call_end: tokenizer.call_end })
    }

    /// Compiles a format, which takes some milliseconds. None where everything is allowed.
    pub(crate) fn compile(&self, format: &OutputFormat) -> Result<Option<Constraint>, SchemaError> {
        if format.tools.is_empty() && format.schema.is_none() {
            return Ok(None);
        }
        let mut matcher = Matcher::new(self.parsers.create_parser(self.grammar(format)?));
        // Some schemas fail only at the first token.
        matcher.compute_mask().map_err(|error| unfollowed(&error))?;
        let is_free = format.schema.is_none() && !format.required;
        Ok(Some(Constraint { matcher, free_until: is_free.then_some(self.call_begin) }))
    }

    /// Writes the grammar in the library's language. A tool call is a JSON object on a separate line between two
    /// special tokens.
    fn grammar(&self, format: &OutputFormat) -> Result<TopLevelGrammar, SchemaError> {
        let (begin, end) = (self.call_begin, self.call_end);
        let (mut rules, mut schemas, mut answers) = (String::new(), Vec::new(), Vec::new());
        if let Some(schema) = format.schema.as_ref().filter(|_| !format.required) {
            answers.push("@text");
            schemas.push(("text".to_owned(), schema::prepared(schema)?));
        }
        if !format.tools.is_empty() {
            answers.push("calls");
            let more = if format.parallel { format!(" (\"\\n\"? <[{begin}]> call)*") } else { String::new() };
            let names: Vec<String> = (0..format.tools.len()).map(|index| format!("call_{index}")).collect();
            let names = names.join(" | ");
            // Writing to a string cannot fail.
            let _ = writeln!(rules, "calls: <[{begin}]> call{more}");
            let _ = writeln!(rules, "call: \"\\n\" ({names}) \"}}\\n\" <[{end}]>");
        }
        for (index, Tool { function }) in format.tools.iter().enumerate() {
            let head = format!("{{\"name\": {}, \"arguments\": ", Value::from(function.name.as_str()));
            let _ = writeln!(rules, "call_{index}: {} @arguments_{index}", Value::from(head));
            let schema = schema::of_arguments(function.parameters.as_ref())?;
            schemas.push((format!("arguments_{index}"), schema));
        }
        let mut grammar = TopLevelGrammar::from_lark(format!("start: {}\n{rules}", answers.join(" | ")));
        let named = |(name, schema)| GrammarWithLexer {
            name: Some(name),
            ..GrammarWithLexer::from_json_schema(schema)
        };
        grammar.grammars.extend(schemas.into_iter().map(named));
        Ok(grammar)
    }
}

impl Constraint {
    /// Makes every token impossible that would leave the grammar. Fails where the grammar needs more than the allowed
    /// work for a token, or allows no token.
    pub(crate) fn mask(&mut self, logits: &mut [f32]) -> Result<(), SchemaError> {
        if self.free_until.is_some() {
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
    pub(crate) fn advance(&mut self, token: u32) -> Result<(), SchemaError> {
        if self.free_until.is_some_and(|call_begin| token != call_begin) {
            return Ok(());
        }
        self.free_until = None;
        self.matcher.consume_token(token).map_err(|error| unfollowed(&error))
    }

    /// Returns whether the answer is complete, so that no token may follow.
    pub(crate) fn is_complete(&self) -> bool {
        self.free_until.is_none() && self.matcher.is_stopped()
    }
}

/// Bytes of a token in the library's spelling. A special token begins with a byte that no text has.
fn word(tokenizer: &Tokenizer, token: u32) -> Vec<u8> {
    let special: &[u8] = if tokenizer.is_special(token) { &[TokTrie::SPECIAL_TOKEN_MARKER] } else { &[] };
    [special, tokenizer.bytes(token)].concat()
}

/// Keeps the first line of the library's error, without further details.
fn unfollowed(error: &impl ToString) -> SchemaError {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default().trim_end_matches(['.', ':']);
    // The library gives a mere name where there is nothing that a grammar allows.
    SchemaError(if line.contains(' ') { line } else { "nothing that can be written fits it" }.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Model;

    #[test]
    fn text_is_free_until_a_call_begins() {
        let tokenizer = Model::shipped().unwrap().tokenizer;
        let compiler = GrammarCompiler::new(&tokenizer).unwrap();
        let tool: Tool =
            serde_json::from_value(json!({"function": {"name": "ping", "parameters": {}}})).unwrap();
        let takes = |parallel, text: &str| {
            let format = OutputFormat { tools: vec![tool.clone()], parallel, ..OutputFormat::default() };
            let mut constraint = compiler.compile(&format).unwrap().unwrap();
            tokenizer.encode_answer(text).into_iter().all(|token| {
                let mut logits = vec![0.0; tokenizer.len()];
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
