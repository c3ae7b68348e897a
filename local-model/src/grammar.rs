//! What an answer may say, as a grammar: a token that would leave it is never chosen.
//!
//! Names, argument keys and types of tool calls, and JSON that follows a schema, are certain by it, however small the
//! model is. An answer that would not end within its tokens is brought to one, as `ending.rs` says; only where a short
//! answer does not fit either do `max_tokens` and the context cut it off.

mod ending;
mod part;
mod schema;
mod way;

use std::{fmt::Write, sync::Arc};

use llguidance::{
    Matcher, ParserFactory,
    api::{GrammarWithLexer, TopLevelGrammar},
    toktrie::{ApproximateTokEnv, SimpleVob, TokRxInfo, TokTrie},
};
use serde_json::Value;

use self::{ending::Ending, part::Part, way::Ways};
use crate::vocabulary::{Pair, Vocabulary};

/// Work on the patterns of one grammar before its first token, in the library's unit: some 10 ms.
const COMPILE_FUEL: u64 = 500_000;
/// Work on one token, in the library's unit: some 4 ms, during which the other requests wait.
const TOKEN_FUEL: u64 = 50_000;
/// States that the patterns of one request may come to have, at 1 to 2 kB each.
const MAX_STATES: usize = 10_000;
/// Symbols of one grammar: a schema of [`MAX_SCHEMA_BYTES`] has fewer, unless it counts far.
const MAX_SYMBOLS: usize = 100_000;
/// All schemas of a request together. Larger ones would not fit the prompt of a small model either.
pub(crate) const MAX_SCHEMA_BYTES: usize = 128 << 10;

/// What a client demands of the form of an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Demand {
    /// The tools that may be called; none means that no tool is called.
    pub(crate) tools: Vec<Tool>,
    /// Whether the answer has to be a call.
    pub(crate) required: bool,
    /// Whether there may be several calls.
    pub(crate) parallel: bool,
    /// What the text has to be, if it has to be JSON.
    pub(crate) schema: Option<Value>,
    /// What may come first.
    pub(crate) thought: Thought,
}

/// Whether an answer begins with a thought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Thought {
    /// It does not.
    #[default]
    No,
    /// It may.
    May,
    /// The prompt has opened one already.
    Begun,
}

/// A tool, with the schema of its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    /// Its place in the request.
    pub(crate) index: usize,
    pub(crate) name: String,
    pub(crate) parameters: Value,
}

/// Compiles demands for one vocabulary.
pub(crate) struct Grammars {
    parsers: ParserFactory,
    ways: Arc<Ways>,
}

/// One answer's way through its grammar.
#[derive(Clone)]
pub(crate) struct Constraint {
    matcher: Matcher,
    /// Until this comes, everything is allowed.
    awaited: Option<Awaited>,
    /// What the answer is in the middle of.
    part: Part,
    ways: Arc<Ways>,
    ending: Ending,
    /// The schema that is at fault if the grammar cannot be followed.
    place: Place,
    /// Whether the model was kept from writing what it chose, as the end would have come too late.
    is_cut: bool,
}

/// The beginning of a call, which has no meaning within a thought.
#[derive(Clone, Copy)]
struct Awaited {
    call: u32,
    thought: Option<Pair>,
    in_thought: bool,
}

/// Why a demand cannot be made a grammar of, or the grammar not be followed to its end: the schema, and what is wrong with
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inexpressible {
    pub(crate) place: Place,
    pub(crate) reason: String,
}

/// Which schema of a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// That of this tool's arguments.
    Tool(usize),
    /// That of the text.
    Text,
    /// No single one: together they are too much.
    All,
}

impl Demand {
    /// Where its schema is, if it has a single one.
    fn place(&self) -> Place {
        match (self.tools.as_slice(), &self.schema) {
            ([tool], None) => Place::Tool(tool.index),
            ([], Some(_)) => Place::Text,
            _ => Place::All,
        }
    }
}

impl Grammars {
    /// For this vocabulary, which has at least one token that ends answers.
    pub(crate) fn new(vocabulary: &Vocabulary) -> Result<Self, String> {
        let first_end = *vocabulary.markers.ends.first().ok_or("no token ends an answer")?;
        let size = u32::try_from(vocabulary.len()).map_err(|error| error.to_string())?;
        let words: Vec<Vec<u8>> = (0..size).map(|token| word(vocabulary, token)).collect();
        let tokens =
            TokTrie::from(&TokRxInfo::new(size, first_end), &words).with_eos_tokens(&vocabulary.markers.ends);
        let tokens: llguidance::toktrie::TokEnv = Arc::new(ApproximateTokEnv::new(tokens));
        let mut parsers = ParserFactory::new_simple(&tokens).map_err(|error| error.to_string())?;
        parsers.quiet();
        let limits = parsers.limits_mut();
        limits.initial_lexer_fuel = COMPILE_FUEL;
        limits.step_lexer_fuel = TOKEN_FUEL;
        limits.max_lexer_states = MAX_STATES;
        limits.max_grammar_size = MAX_SYMBOLS;
        // Errors are told to clients: they say what is wrong, and nothing of our insides.
        limits.verbose_errors = false;
        let ways = Arc::new(Ways::new(tokens, vocabulary.markers.clone()));
        Ok(Self { parsers, ways })
    }

    /// Whether answers in this vocabulary can call tools.
    pub(crate) fn can_call(&self) -> bool {
        self.ways.markers.call.is_some()
    }

    /// Makes a grammar of a demand, which takes some milliseconds. None means that everything is allowed.
    pub(crate) fn compile(&self, demand: &Demand) -> Result<Option<Constraint>, Inexpressible> {
        let calls = self.ways.markers.call.filter(|_| !demand.tools.is_empty());
        if calls.is_none() && demand.schema.is_none() {
            return Ok(None);
        }
        let grammar = Written::new(demand, calls, self.ways.markers.thought)?;
        let is_free = demand.schema.is_none() && !demand.required;
        let awaited = calls.filter(|_| is_free).map(|marker| Awaited {
            call: marker.open,
            thought: self.ways.markers.thought,
            in_thought: demand.thought == Thought::Begun,
        });
        let part = if demand.thought == Thought::Begun { Part::Thought } else { Part::Between };
        match self.parse(grammar.into()) {
            Ok(matcher) => {
                let (ways, ending, place) = (Arc::clone(&self.ways), Ending::default(), demand.place());
                Ok(Some(Constraint { matcher, awaited, part, ways, ending, place, is_cut: false }))
            }
            Err(reason) => Err(self.culprit(demand, reason)),
        }
    }

    fn parse(&self, grammar: TopLevelGrammar) -> Result<Matcher, String> {
        let mut matcher = Matcher::new(self.parsers.create_parser(grammar));
        // Some demands show only with the first token that they cannot be met.
        matcher.compute_mask().map_err(|error| first_line(&error.to_string()))?;
        Ok(matcher)
    }

    /// The schema that fails by itself, if there is one.
    fn culprit(&self, demand: &Demand, reason: String) -> Inexpressible {
        let tools = demand.tools.iter().map(|tool| (Place::Tool(tool.index), &tool.parameters));
        let text = demand.schema.iter().map(|schema| (Place::Text, schema));
        let fails = |(place, schema): (Place, &Value)| {
            let closed = schema::prepared(schema, place).ok()?;
            let reason = self.parse(TopLevelGrammar::from_json_schema(closed)).err()?;
            Some(Inexpressible { place, reason })
        };
        tools.chain(text).find_map(fails).unwrap_or(Inexpressible { place: Place::All, reason })
    }
}

impl Constraint {
    /// Makes all tokens impossible that would leave the grammar, or go on with a number that is long enough.
    ///
    /// # Errors
    /// Where the grammar needs more work for one token than is allowed, or allows none.
    pub(crate) fn forbid_others(&mut self, scores: &mut [f32]) -> Result<(), Inexpressible> {
        if self.awaited.is_some() {
            return Ok(());
        }
        let mut allowed = self.matcher.compute_mask_or_eos().map_err(|error| self.lost(&error))?;
        self.end_number(&mut allowed)?;
        for (token, score) in (0..).zip(scores) {
            if !allowed.is_allowed(token) {
                *score = f32::NEG_INFINITY;
            }
        }
        Ok(())
    }

    /// Goes on by a token that does not end the answer.
    pub(crate) fn take(&mut self, token: u32) -> Result<(), Inexpressible> {
        if self.awaited.as_mut().is_some_and(|awaited| !awaited.comes_with(token)) {
            return Ok(());
        }
        self.awaited = None;
        self.part = self.ways.part_after(self.part, token);
        self.matcher.consume_token(token).map_err(|error| self.lost(&error))
    }

    /// Forbids further digits where there are many already. If nothing else may follow, the schema wants them, but hardly
    /// zeros: they would never make a number greater than zero.
    fn end_number(&self, allowed: &mut SimpleVob) -> Result<(), Inexpressible> {
        if !matches!(self.part, Part::Number { .. }) {
            return Ok(());
        }
        let tokens = self.matcher.tok_env().map_err(|error| self.lost(&error))?;
        let words = tokens.tok_trie();
        let (longer, others): (Vec<u32>, Vec<u32>) =
            allowed.iter().partition(|&token| self.part.is_overrun_by(words.token(token)));
        let is_zero = |&token: &u32| words.token(token).iter().all(|&byte| byte == b'0');
        let unwanted = if !others.is_empty() {
            longer
        } else if longer.iter().all(is_zero) {
            Vec::new()
        } else {
            longer.into_iter().filter(is_zero).collect()
        };
        for token in unwanted {
            allowed.disallow_token(token);
        }
        Ok(())
    }

    fn lost(&self, error: &impl ToString) -> Inexpressible {
        Inexpressible { place: self.place, reason: first_line(&error.to_string()) }
    }

    /// Whether nothing can follow any more.
    pub(crate) fn is_complete(&self) -> bool {
        self.awaited.is_none() && self.matcher.is_stopped()
    }
}

impl Awaited {
    fn comes_with(&mut self, token: u32) -> bool {
        if let Some(thought) = self.thought {
            self.in_thought = token == thought.open || self.in_thought && token != thought.close;
        }
        self.is_met_by(token)
    }

    /// Whether the call begins with this token.
    fn is_met_by(self, token: u32) -> bool {
        token == self.call && !self.in_thought
    }
}

/// A grammar in the library's language: its rules, and the schemas that they refer to.
struct Written {
    rules: String,
    schemas: Vec<(String, Value)>,
}

impl Written {
    fn new(demand: &Demand, calls: Option<Pair>, thought: Option<Pair>) -> Result<Self, Inexpressible> {
        let mut written = Self { rules: String::new(), schemas: Vec::new() };
        let text =
            if demand.schema.is_some() && !(demand.required && calls.is_some()) { "@text" } else { "" };
        let call = if calls.is_some() { "calls" } else { "" };
        let answers: Vec<&str> = [text, call].into_iter().filter(|rule| !rule.is_empty()).collect();
        let before = written.thought(demand.thought, thought);
        written.rule("start", &format!("{before}({})", answers.join(" | ")));
        if let Some(schema) = demand.schema.as_ref().filter(|_| !text.is_empty()) {
            written.schemas.push(("text".to_owned(), schema::prepared(schema, Place::Text)?));
        }
        if let Some(markers) = calls {
            written.calls(demand, markers)?;
        }
        Ok(written)
    }

    /// What stands before the answer proper.
    fn thought(&mut self, thought: Thought, markers: Option<Pair>) -> &'static str {
        let Some(Pair { open, close }) = markers else { return "" };
        let (begin, before) = match thought {
            Thought::No => return "",
            Thought::May => (format!("<[{open}]> "), "thought? "),
            Thought::Begun => (String::new(), "thought "),
        };
        self.rule("thought", &format!("{begin}THOUGHT <[{close}]> /\\n*/"));
        self.rule("THOUGHT", "/(.|\\n)*/");
        before
    }

    /// Calls as chat templates write them: a JSON object on a line of its own between two markers.
    fn calls(&mut self, demand: &Demand, Pair { open, close }: Pair) -> Result<(), Inexpressible> {
        let more = if demand.parallel { format!(" (\"\\n\"? <[{open}]> call)*") } else { String::new() };
        self.rule("calls", &format!("<[{open}]> call{more}"));
        let names: Vec<String> = (0..demand.tools.len()).map(|index| format!("call_{index}")).collect();
        self.rule("call", &format!("\"\\n\" ({}) \"}}\\n\" <[{close}]>", names.join(" | ")));
        for (index, tool) in demand.tools.iter().enumerate() {
            let begin = format!("{{\"name\": {}, \"arguments\": ", Value::from(tool.name.as_str()));
            self.rule(&names[index], &format!("{} @arguments_{index}", Value::from(begin)));
            let schema = schema::prepared(&tool.parameters, Place::Tool(tool.index))?;
            self.schemas.push((format!("arguments_{index}"), schema));
        }
        Ok(())
    }

    fn rule(&mut self, name: &str, body: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.rules, "{name}: {body}");
    }
}

impl From<Written> for TopLevelGrammar {
    fn from(Written { rules, schemas }: Written) -> Self {
        let mut grammar = Self::from_lark(rules);
        let named = |(name, schema)| GrammarWithLexer {
            name: Some(name),
            ..GrammarWithLexer::from_json_schema(schema)
        };
        grammar.grammars.extend(schemas.into_iter().map(named));
        grammar
    }
}

/// What a token writes, in the library's spelling: a marker begins with a byte that no text has.
fn word(vocabulary: &Vocabulary, token: u32) -> Vec<u8> {
    let bytes = vocabulary.bytes(token);
    if vocabulary.is_marker(token) {
        [&[TokTrie::SPECIAL_TOKEN_MARKER], bytes].concat()
    } else {
        bytes.to_vec()
    }
}

/// What is wrong, without the library's further details.
fn first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().trim_end_matches(['.', ':']);
    // It gives a mere name where there is nothing that a grammar allows.
    if line.contains(' ') { line.to_owned() } else { "nothing that can be written fits it".to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Model;

    fn ping(thought: Thought) -> Demand {
        let tool = Tool { index: 0, name: "ping".to_owned(), parameters: json!({"type": "object"}) };
        Demand { tools: vec![tool], parallel: true, thought, ..Demand::default() }
    }

    /// Whether the grammar takes all these tokens, each of which it allowed.
    fn takes(vocabulary: &Vocabulary, demand: &Demand, text: &str) -> bool {
        let mut constraint = Grammars::new(vocabulary).unwrap().compile(demand).unwrap().unwrap();
        vocabulary.encode(text).unwrap().into_iter().all(|token| {
            let mut scores = vec![0.0; vocabulary.len()];
            constraint.forbid_others(&mut scores).unwrap();
            scores[token as usize] == 0.0 && constraint.take(token).is_ok()
        })
    }

    #[test]
    fn text_is_free_until_a_call_begins() {
        let vocabulary = Model::shipped().unwrap().vocabulary;
        let demand = ping(Thought::No);
        let call = "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>";
        assert!(takes(&vocabulary, &demand, &format!("Anything at all. {call}{call}\n{call}")));
        assert!(!takes(&vocabulary, &demand, "Well: <tool_call>\n{\"name\": \"pong\""));
        assert!(!takes(&vocabulary, &demand, &format!("{call} and then some")));
        assert!(!takes(&vocabulary, &Demand { parallel: false, ..demand }, &format!("{call}{call}")));
    }

    #[test]
    fn within_a_thought_nothing_is_a_call() {
        let vocabulary = Model::shipped().unwrap().vocabulary;
        let thought = "Should I <tool_call> it?</think>";
        assert!(takes(&vocabulary, &ping(Thought::May), &format!("<think>{thought}Yes.")));
        assert!(takes(&vocabulary, &ping(Thought::Begun), &format!("{thought}Yes.")));
        assert!(!takes(&vocabulary, &ping(Thought::No), thought));
    }

    #[test]
    fn a_thought_may_stand_before_what_is_required() {
        let vocabulary = Model::shipped().unwrap().vocabulary;
        let schema = Some(json!({"type": "object"}));
        let demand = |thought| Demand { schema: schema.clone(), thought, ..Demand::default() };
        assert!(takes(&vocabulary, &demand(Thought::May), "<think>\nHm.\n</think>\n\n{\"a\": 1}"));
        assert!(takes(&vocabulary, &demand(Thought::Begun), "Hm.\n</think>{\"a\": 1}"));
        assert!(!takes(&vocabulary, &demand(Thought::No), "<think>"));
    }
}
