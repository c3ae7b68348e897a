//! Folds a streamed answer into the whole answer that its server would have sent.

use std::fmt::Write as _;

use bytes::Bytes;
use raw_json::RawString;
use shared::{
    generation::FinishReason,
    json::{Kind, RawValue},
};

use crate::{
    pieces::{
        calls::{Calls, PieceId},
        logprobs::Logprobs,
        nonsense::Nonsense,
        parts::{Delta, MAX_CALLS, ToolCall},
        signed::{Carry, PARTS},
    },
    stream::{Chunk, ChunkChoice},
};

/// The choices of a stream so far, with texts as the upstream spelled them. It has no `Debug`, so that no log can show
/// a text.
#[derive(Default)]
pub struct Fold {
    choices: Vec<FoldedChoice>,
    held_bytes: usize,
}

#[derive(Default)]
struct FoldedChoice {
    content: Option<String>,
    refusal: Option<String>,
    reasoning: Option<String>,
    known_calls: Calls,
    calls: Vec<FoldedCall>,
    /// The two lists in `logprobs`, without brackets: tokens of the text and tokens of a refusal.
    logprobs: [Option<String>; 2],
    finish: Option<FinishReason>,
    /// Stop sequence that ended the choice, as spelled.
    stop: Option<String>,
    carry: Carry,
}

#[derive(Default)]
struct FoldedCall {
    /// Index of this call, counted the way the client counts calls.
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

impl Fold {
    pub fn add(&mut self, chunk: &Chunk<'_>) {
        for choice in &chunk.choices {
            self.add_choice(choice);
        }
    }

    fn add_choice(&mut self, choice: &ChunkChoice<'_>) {
        if self.choices.len() <= choice.index {
            self.choices.resize_with(choice.index + 1, FoldedChoice::default);
        }
        self.held_bytes += self.choices[choice.index].add(choice);
    }

    /// Returns whether at least this many choices have a finish reason.
    pub fn is_finished(&self, choices: u64) -> bool {
        let finished = self.choices.iter().filter(|choice| choice.finish.is_some()).count();
        finished as u64 >= choices && finished == self.choices.len()
    }

    pub const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Sets missing finish reasons, once the server has sent everything. Returns whether any was missing. Choices that
    /// never came are left out, so that the others reach the client.
    pub fn end(&mut self) -> bool {
        self.choices.retain(|choice| choice.finish.is_some() || choice.has_output());
        let open = self.choices.iter_mut().filter(|choice| choice.finish.is_none());
        open.fold(false, |_, choice| {
            choice.finish =
                Some(if choice.calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls });
            true
        })
    }

    /// Returns whether the answer has output or a finish reason.
    pub fn has_answer(&self) -> bool {
        self.choices.iter().any(|choice| choice.finish.is_some() || choice.has_output())
    }

    /// Replaces everything with an empty answer.
    pub fn leave_empty(&mut self) {
        self.choices = vec![FoldedChoice { finish: Some(FinishReason::Stop), ..FoldedChoice::default() }];
    }

    /// Returns the whole answer, without usage.
    pub fn into_answer(self) -> Result<Bytes, Nonsense> {
        self.write(None)
    }

    /// Writes the whole answer. `model` is the model's name as spelled in JSON.
    pub(super) fn write(mut self, model: Option<&str>) -> Result<Bytes, Nonsense> {
        if self.choices.is_empty() {
            return Err(Nonsense::Choices);
        }
        let mut json = String::with_capacity(self.held_bytes + self.held_bytes / 8);
        json.push_str(r#"{"choices":["#);
        for (index, choice) in self.choices.iter_mut().enumerate() {
            if index > 0 {
                json.push(',');
            }
            choice.write(index, &mut json)?;
        }
        json.push(']');
        if let Some(model) = model {
            json.extend([r#","model":"#, model]);
        }
        json.push('}');
        Ok(Bytes::from(json))
    }
}

impl FoldedChoice {
    /// Adds a piece. Returns the bytes added.
    fn add(&mut self, piece: &ChunkChoice<'_>) -> usize {
        let Delta { content, refusal, reasoning, .. } = piece.delta;
        let mut added = append(&mut self.content, content)
            + append(&mut self.refusal, refusal)
            + append(&mut self.reasoning, reasoning);
        let held = self.carry.held_bytes();
        self.carry.add(&piece.delta);
        for (place, call) in piece.delta.calls().iter().enumerate() {
            added += self.add_call(call, place);
        }
        added += self.carry.held_bytes() - held;
        added += self.add_logprobs(piece.logprobs);
        self.finish = self.finish.or(piece.finish);
        self.stop = piece.stop.map(|stop| stop.inner().to_owned()).or_else(|| self.stop.take());
        added
    }

    fn has_output(&self) -> bool {
        let texts = [&self.content, &self.refusal, &self.reasoning];
        !self.calls.is_empty() || texts.into_iter().flatten().any(|text| !text.is_empty())
    }

    fn add_call(&mut self, call: &ToolCall<'_>, place: usize) -> usize {
        let piece = self.known_calls.place(call, place);
        self.carry.call(call, piece.index);
        let at = self.calls.iter().position(|known| known.index == piece.index).unwrap_or(self.calls.len());
        let mut added = 0;
        if at == self.calls.len() {
            // Keeps one call too many, so that the reader of the answer refuses it.
            if at > MAX_CALLS {
                return 0;
            }
            self.calls.push(FoldedCall { index: piece.index, ..FoldedCall::default() });
            added += size_of::<FoldedCall>();
        }
        let known = &mut self.calls[at];
        let id = call.id().filter(|_| piece.id == PieceId::Upstream && known.id.is_empty());
        for (text, new) in [
            (&mut known.id, id),
            (&mut known.name, call.name().filter(|_| piece.name_is_new)),
            (&mut known.arguments, call.arguments()),
        ] {
            let new = new.map_or("", RawString::inner);
            text.push_str(new);
            added += new.len();
        }
        added
    }

    fn add_logprobs(&mut self, logprobs: Option<&RawValue>) -> usize {
        let Some(Logprobs { content, refusal }) = logprobs.and_then(Logprobs::read) else { return 0 };
        let mut added = 0;
        for (list, new) in self.logprobs.iter_mut().zip([content, refusal]) {
            let Some(new) = new.filter(|new| Kind::of(new) == Kind::Array) else { continue };
            let new = new.get()[1..new.get().len() - 1].trim_ascii();
            let list = list.get_or_insert_default();
            if !list.is_empty() && !new.is_empty() {
                list.push(',');
            }
            list.push_str(new);
            added += new.len() + 1;
        }
        added
    }

    fn write(&mut self, index: usize, json: &mut String) -> Result<(), Nonsense> {
        let finish = self.finish.ok_or(Nonsense::Unfinished)?;
        // Writing to a string cannot fail.
        let _ = write!(json, r#"{{"index":{index},"message":{{"role":"assistant","content":"#);
        put_text(self.content.as_deref(), json);
        for (name, text) in [("refusal", &self.refusal), ("reasoning_content", &self.reasoning)] {
            if let Some(text) = text {
                let _ = write!(json, r#","{name}":"{text}""#);
            }
        }
        if let Some(parts) = self.carry.take_json() {
            let _ = write!(json, r#","{PARTS}":{parts}"#);
        }
        let mut before = r#","tool_calls":["#;
        for FoldedCall { id, name, arguments, .. } in &self.calls {
            let _ = write!(
                json,
                r#"{before}{{"id":"{id}","type":"function","function":{{"name":"{name}","arguments":"{arguments}"}}}}"#
            );
            before = ",";
        }
        json.push_str(if before == "," { "]}" } else { "}" });
        if let [Some(_), _] | [_, Some(_)] = &self.logprobs {
            let [content, refusal] = &self.logprobs;
            json.push_str(r#","logprobs":{"content":"#);
            put_list(content.as_deref(), json);
            json.push_str(r#","refusal":"#);
            put_list(refusal.as_deref(), json);
            json.push('}');
        }
        if let Some(stop) = &self.stop {
            let _ = write!(json, r#","stop_reason":"{stop}""#);
        }
        let _ = write!(json, r#","finish_reason":"{}"}}"#, finish.as_str());
        Ok(())
    }
}

/// Appends a text as spelled, without quotes, and returns the bytes added.
fn append(text: &mut Option<String>, new: Option<RawString<'_>>) -> usize {
    let Some(new) = new else { return 0 };
    text.get_or_insert_default().push_str(new.inner());
    new.inner().len()
}

fn put_text(text: Option<&str>, json: &mut String) {
    match text {
        Some(text) => {
            json.push('"');
            json.push_str(text);
            json.push('"');
        }
        None => json.push_str("null"),
    }
}

fn put_list(elements: Option<&str>, json: &mut String) {
    match elements {
        Some(elements) => {
            json.push('[');
            json.push_str(elements);
            json.push(']');
        }
        None => json.push_str("null"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::stream::Event;

    fn fold(chunks: &[Value]) -> Fold {
        let mut fold = Fold::default();
        for chunk in chunks {
            let chunk = chunk.to_string();
            let Ok(Event::Chunk(chunk)) = Event::read(chunk.as_bytes()) else { panic!("{chunk}") };
            fold.add(&chunk);
        }
        fold
    }

    fn piece(index: u64, delta: &Value, finish: Option<&str>) -> Value {
        json!({"choices": [{"index": index, "delta": delta, "finish_reason": finish}]})
    }

    fn answer(chunks: &[Value]) -> Value {
        serde_json::from_slice(&fold(chunks).into_answer().ok().unwrap()).unwrap()
    }

    #[test]
    fn pieces_of_several_choices_make_the_whole_answer() {
        let call = |call: Value| piece(1, &json!({ "tool_calls": [call] }), None);
        let mut logged = piece(0, &json!({"content": "b\"\u{e9}"}), None);
        logged["choices"][0]["logprobs"] = json!({"content": [{"token": "b"}, {"token": "c"}]});
        let mut first =
            piece(0, &json!({"role": "assistant", "content": "a\n", "reasoning_content": "r"}), None);
        first["choices"][0]["logprobs"] = json!({"content": [{"token": "a"}]});
        let chunks = [
            first,
            call(json!({"index": 0, "id": "c1", "function": {"name": "f", "arguments": "{\"q"}})),
            logged,
            call(json!({"index": 1, "function": {"name": "g", "arguments": "{}"}})),
            piece(0, &json!({}), Some("stop")),
            call(json!({"index": 0, "id": "c1", "function": {"name": "f", "arguments": "\":1}"}})),
            json!({"choices": [], "usage": {"completion_tokens": 3}}),
            piece(1, &json!({}), Some("tool_calls")),
        ];
        let expected = json!({"choices": [
            {"index": 0, "message": {"role": "assistant", "content": "a\nb\"\u{e9}", "reasoning_content": "r"},
                "logprobs": {"content": [{"token": "a"}, {"token": "b"}, {"token": "c"}], "refusal": null},
                "finish_reason": "stop"},
            {"index": 1, "message": {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"q\":1}"}},
                {"id": "", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
                "finish_reason": "tool_calls"},
        ]});
        assert_eq!(answer(&chunks), expected);
        assert!(fold(&chunks).is_finished(2) && !fold(&chunks[..7]).is_finished(2));
    }

    #[test]
    fn halves_of_a_surrogate_pair_in_two_pieces_meet_again() {
        let half = |spelled: &str| {
            let text = format!(r#"{{"choices":[{{"index":0,"delta":{{"content":"{spelled}"}}}}]}}"#);
            text.into_bytes()
        };
        let mut fold = Fold::default();
        for spelled in ["\\ud83d", "\\ude00"] {
            let bytes = half(spelled);
            let Ok(Event::Chunk(chunk)) = Event::read(&bytes) else { panic!("{spelled}") };
            fold.add(&chunk);
        }
        let end = piece(0, &json!({}), Some("stop")).to_string();
        let Ok(Event::Chunk(chunk)) = Event::read(end.as_bytes()) else { panic!("{end}") };
        fold.add(&chunk);
        let answer: Value = serde_json::from_slice(&fold.into_answer().ok().unwrap()).unwrap();
        assert_eq!(answer["choices"][0]["message"]["content"], "\u{1f600}");
    }

    #[test]
    fn a_choice_that_never_came_costs_no_client_the_others() {
        let mut fold = fold(&[
            piece(1, &json!({"content": "a"}), Some("stop")),
            piece(3, &json!({"content": "b"}), None),
        ]);
        assert!(fold.end());
        let answer: Value = serde_json::from_slice(&fold.into_answer().ok().unwrap()).unwrap();
        let told: Vec<_> = answer["choices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|choice| (&choice["index"], &choice["message"]["content"]))
            .collect();
        assert_eq!(told, [(&json!(0), &json!("a")), (&json!(1), &json!("b"))]);
    }

    #[test]
    fn a_choice_without_a_finish_reason_makes_no_answer() {
        for chunks in [
            vec![piece(0, &json!({"content": "a"}), None)],
            vec![piece(0, &json!({"content": "a"}), Some("stop")), piece(1, &json!({"content": "b"}), None)],
            // The first choice never came.
            vec![piece(1, &json!({"content": "a"}), Some("stop"))],
        ] {
            assert!(fold(&chunks).into_answer().is_err_and(|nonsense| nonsense == Nonsense::Unfinished));
        }
    }
}
