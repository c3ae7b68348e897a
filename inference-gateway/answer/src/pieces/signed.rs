//! Parts of an answer that its server needs back in the next turn, and the strings in which clients carry them.

use bytes::BytesMut;
use reply::carried::{self, CarriedPart, PlacedPart, ReasoningDetail, ServerId, google_signature};
use shared::json::{RawValue, each_element};

use super::parts::{Delta, SignedPart, ToolCall};
use crate::generation::put;

/// Member of a folded answer that contains the parts.
pub(crate) const PARTS: &str = "faregate_parts";
/// Maximum length of an answer's parts in bytes. Vendors send about ten thousand.
const MOST_BYTES: usize = 4 << 20;

/// Parts that the client has not received yet. It has no `Debug`, since it contains thoughts.
#[derive(Default)]
pub(crate) struct Carry {
    server: ServerId,
    /// The thought that a signature may follow.
    thought: String,
    /// Number of calls that have begun.
    calls: u64,
    parts: Vec<PlacedPart>,
    bytes: usize,
}

impl Carry {
    pub(crate) fn new(server: ServerId) -> Self {
        Self { server, ..Self::default() }
    }

    pub(crate) fn of(message: &Delta<'_>, server: ServerId) -> Self {
        let mut carry = Self::new(server);
        carry.add(message);
        for (place, call) in message.calls().iter().enumerate() {
            carry.call(call, place as u64);
        }
        carry
    }

    /// Adds a piece's parts, except those of its calls.
    pub(crate) fn add(&mut self, delta: &Delta<'_>) {
        if let Some(signed) = delta.signed {
            self.signed(signed);
        }
        if let Some(details) = delta.reasoning_details {
            // Only a list can be a record of reasoning.
            let _ = each_element(details, |detail: &RawValue| {
                if let Ok(detail) = serde_json::from_str::<ReasoningDetail>(detail.get()) {
                    self.detail(detail);
                }
                true
            });
        }
        if let Some(signature) = delta.extra_content.and_then(|extra| google_signature(extra.get())) {
            self.push(0, CarriedPart::TextSignature { signature });
        }
        if let Some(parts) = delta.parts
            && let Ok(parts) = serde_json::from_str::<Vec<PlacedPart>>(parts.get())
        {
            self.parts.extend(parts);
        }
    }

    /// Adds the signature in a piece of a call.
    pub(crate) fn call(&mut self, call: &ToolCall<'_>, place: u64) {
        self.calls = self.calls.max(place + 1);
        if let Some(signature) = call.extra_content.and_then(|extra| google_signature(extra.get())) {
            self.push(place, CarriedPart::CallSignature { signature });
        }
    }

    fn signed(&mut self, signed: SignedPart<'_>) {
        let calls = self.calls;
        match signed {
            SignedPart::Restarted => {
                self.thought.clear();
                self.parts.clear();
            }
            SignedPart::Thought(text) if self.bytes < MOST_BYTES => {
                let text = text.decoded();
                self.bytes += text.len();
                self.thought.push_str(&text);
            }
            SignedPart::Thought(_) => {}
            SignedPart::Signature(signature) => {
                let (text, signature) = (std::mem::take(&mut self.thought), signature.decoded().into_owned());
                self.push(calls, CarriedPart::Thought { text, signature });
            }
            SignedPart::Redacted(data) => {
                self.push(calls, CarriedPart::Redacted { data: data.decoded().into_owned() });
            }
            SignedPart::Encrypted { id, content } => {
                let [id, content] = [id, content].map(|text| text.decoded().into_owned());
                self.push(calls, CarriedPart::Encrypted { id, content });
            }
        }
    }

    /// Adds an element, or extends the element with the same number and type.
    fn detail(&mut self, new: ReasoningDetail) {
        let known = self.parts.iter_mut().find_map(|PlacedPart(_, part)| match part {
            CarriedPart::Detail(known)
                if new.index.is_some() && known.index == new.index && known.kind == new.kind =>
            {
                Some(known)
            }
            CarriedPart::Detail(_)
            | CarriedPart::Thought { .. }
            | CarriedPart::Redacted { .. }
            | CarriedPart::Encrypted { .. }
            | CarriedPart::CallSignature { .. }
            | CarriedPart::TextSignature { .. } => None,
        });
        let Some(known) = known.filter(|_| self.bytes < MOST_BYTES) else {
            return self.push(self.calls, CarriedPart::Detail(new));
        };
        for (known, new) in
            [(&mut known.text, new.text), (&mut known.summary, new.summary), (&mut known.data, new.data)]
        {
            if let Some(new) = new {
                self.bytes += new.len();
                known.get_or_insert_default().push_str(&new);
            }
        }
        for (known, new) in
            [(&mut known.signature, new.signature), (&mut known.id, new.id), (&mut known.format, new.format)]
        {
            if new.is_some() {
                *known = new;
            }
        }
    }

    fn push(&mut self, place: u64, part: CarriedPart) {
        let part = PlacedPart(place, part);
        self.bytes += bytes_of(&part);
        if self.bytes < MOST_BYTES {
            self.parts.push(part);
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) const fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Takes all parts as one string.
    pub(crate) fn take(&mut self) -> Option<String> {
        let parts = std::mem::take(&mut self.parts);
        (!parts.is_empty()).then(|| carried::carry(self.server, &parts))
    }

    /// Takes the signature of the call at this place.
    pub(crate) fn take_call(&mut self, call: u64) -> Option<String> {
        let is_of_call = |PlacedPart(place, part): &PlacedPart| {
            *place == call && matches!(part, CarriedPart::CallSignature { .. })
        };
        let at = self.parts.iter().position(is_of_call)?;
        Some(carried::carry(self.server, &[self.parts.remove(at)]))
    }

    /// Takes the parts for a folded answer, as JSON.
    pub(crate) fn take_json(&mut self) -> Option<String> {
        let parts = std::mem::take(&mut self.parts);
        if parts.is_empty() { None } else { serde_json::to_string(&parts).ok() }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the member for chat clients, once an answer is complete.
    pub(crate) fn write_details(&mut self, out: &mut BytesMut) {
        if let Some(text) = self.take() {
            put(out, r#""reasoning_details":[{"type":"reasoning.encrypted","data":""#);
            put(out, &text);
            put(out, r#"","id":null,"format":"unknown","index":0}]"#);
        }
    }
}

/// Writes a call's signature for chat clients, with a comma before it.
pub(crate) fn put_call_signature(text: &str, out: &mut BytesMut) {
    put(out, r#","extra_content":{"google":{"thought_signature":""#);
    put(out, text);
    put(out, "\"}}");
}

fn bytes_of(PlacedPart(_, part): &PlacedPart) -> usize {
    size_of::<PlacedPart>()
        + match part {
            CarriedPart::Thought { text, signature } => text.len() + signature.len(),
            CarriedPart::Redacted { data } => data.len(),
            CarriedPart::Encrypted { id, content } => id.len() + content.len(),
            CarriedPart::CallSignature { signature } | CarriedPart::TextSignature { signature } => {
                signature.len()
            }
            CarriedPart::Detail(ReasoningDetail {
                kind,
                id,
                format,
                index: _,
                text,
                summary,
                data,
                signature,
            }) => {
                let texts = [id, format, text, summary, data, signature];
                kind.len() + texts.into_iter().flatten().map(String::len).sum::<usize>()
            }
        }
}
