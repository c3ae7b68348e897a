//! Writes a chat from the draft for each set of terms that the model's servers have. Most servers get the draft
//! unchanged.

use std::ops::Range;

use raw_json::Members;
use reply::carried::{CarriedPart, PlacedPart, ServerId};
use serde_json::Value as Json;
use shared::error::ApiError;
use shared_catalog::{CallIds, HistoryForm, ReasoningParam, SystemMessages, Upstream, UpstreamKind};

use super::{
    body::Draft,
    call_ids::nine,
    carried::{CARRIED, parts_at, parts_of},
    places::{AnsweredPlace, Mark},
};

/// Value that Google accepts instead of a lost signature, as its documentation says.
const LOST_SIGNATURE: &str = "skip_thought_signature_validator";

/// What the form of a chat depends on, in addition to the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatTerms {
    history: HistoryForm,
    /// Whether the server belongs to a vendor, and so accepts only the API's own members.
    is_hosted: bool,
    /// The server, if the conversation has parts to return to it.
    server: Option<ServerId>,
}

impl ChatTerms {
    /// Terms of requests that have no messages.
    pub const NO_CHAT: Self = Self {
        history: HistoryForm {
            reasoning_param: ReasoningParam::AsSent,
            system_messages: SystemMessages::InPlace,
            call_ids: CallIds::Any,
            thought_signatures: false,
        },
        is_hosted: false,
        server: None,
    };

    pub(crate) fn of(upstream: &Upstream, server: Option<ServerId>) -> Self {
        Self { history: upstream.history, is_hosted: upstream.kind == UpstreamKind::Openai, server }
    }

    /// Returns whether a server with these terms gets back this part, which the server `made_by` made.
    fn gets(&self, made_by: ServerId, part: &CarriedPart) -> bool {
        if self.server == Some(made_by) {
            return true;
        }
        let is_of_form = match part {
            CarriedPart::Detail(_) => self.history.reasoning_param == ReasoningParam::ReasoningDetails,
            CarriedPart::CallSignature { .. } | CarriedPart::TextSignature { .. } => {
                self.history.thought_signatures
            }
            CarriedPart::Thought { .. } | CarriedPart::Redacted { .. } | CarriedPart::Encrypted { .. } => {
                false
            }
        };
        made_by == ServerId::ANY && is_of_form
    }
}

/// Replacements of parts of the draft, in any order.
pub(crate) type Edits = Vec<(Range<usize>, String)>;

impl Draft {
    /// Lists the edits of the draft for servers with these terms.
    pub(crate) fn edits_for(&self, terms: ChatTerms) -> Result<Edits, ApiError> {
        let mut edits = self.system_edits(terms.history.system_messages)?;
        let mut calls = Vec::new();
        for mark in &self.marks {
            match mark {
                Mark::Optional(at) if terms.is_hosted => edits.push((at.clone(), String::new())),
                Mark::Optional(_) => {}
                Mark::Call { id, end } => {
                    self.edit_id(id, terms, &mut edits);
                    calls.push(*end);
                }
                Mark::Answer(id) => self.edit_id(id, terms, &mut edits),
                Mark::Answered(place) => {
                    let reasoning = place.reasoning.as_ref().map(|at| self.written(at));
                    let written = self.written(&place.members);
                    EarlierEnd { written, reasoning, place, calls: &calls }.edit(terms, &mut edits);
                    calls.clear();
                }
            }
        }
        Ok(edits)
    }

    /// Writes the chat with these edits, without its closing brace.
    pub(crate) fn edited(&self, edits: Edits) -> Vec<u8> {
        edited(&self.json, edits)
    }

    /// Returns a part of the draft. It must begin and end at character boundaries.
    fn written(&self, at: &Range<usize>) -> &str {
        std::str::from_utf8(&self.json[at.clone()]).unwrap_or_default()
    }

    fn edit_id(&self, id: &Range<usize>, terms: ChatTerms, edits: &mut Edits) {
        let written = self.written(id);
        let taken = match terms.history.call_ids {
            CallIds::Any => super::call_ids::short(written),
            CallIds::Nine => nine(written),
        };
        if let Some(taken) = taken {
            edits.push((id.clone(), taken));
        }
    }
}

/// Writes JSON with these edits, and leaves room for one more byte.
pub(crate) fn edited(json: &[u8], mut edits: Edits) -> Vec<u8> {
    edits.sort_by_key(|(at, _)| at.start);
    let added: usize = edits.iter().map(|(_, with)| with.len()).sum();
    let (mut out, mut kept) = (Vec::with_capacity(json.len() + added + 1), 0);
    for (at, with) in edits {
        out.extend_from_slice(&json[kept..at.start]);
        out.extend_from_slice(with.as_bytes());
        kept = at.end;
    }
    out.extend_from_slice(&json[kept..]);
    out
}

/// The members at the end of an earlier answer.
struct EarlierEnd<'d> {
    written: &'d str,
    /// The reasoning as a JSON string.
    reasoning: Option<&'d str>,
    place: &'d AnsweredPlace,
    /// For each of its calls, the position at which to insert further members.
    calls: &'d [usize],
}

impl EarlierEnd<'_> {
    fn edit(&self, terms: ChatTerms, edits: &mut Edits) {
        let parts = self.parts(terms);
        let members = self.members(terms, &parts);
        if members != self.written {
            edits.push((self.place.members.clone(), members));
        }
        let signature = |place: usize| {
            let signatures = parts_at(&parts, place as u64).filter_map(|part| match part {
                CarriedPart::CallSignature { signature } => Some(&**signature),
                CarriedPart::Thought { .. }
                | CarriedPart::Redacted { .. }
                | CarriedPart::Encrypted { .. }
                | CarriedPart::Detail(_)
                | CarriedPart::TextSignature { .. } => None,
            });
            signatures.last()
        };
        let signs = terms.history.thought_signatures;
        let is_signed = (0..self.calls.len()).any(|place| signature(place).is_some());
        for (place, end) in self.calls.iter().enumerate() {
            // Of parallel calls, only the first carries the signature.
            let lost = (signs && place == 0 && !is_signed).then_some(LOST_SIGNATURE);
            if let Some(signature) = signature(place).or(lost) {
                edits.push((*end..*end, extra_content(signature)));
            }
        }
    }

    /// Returns the parts that the server gets.
    fn parts(&self, terms: ChatTerms) -> Vec<PlacedPart> {
        if !self.written.contains(CARRIED) {
            return Vec::new();
        }
        // The members begin with a comma.
        let object = format!("{{{}}}", self.written.trim_start_matches(','));
        let read = Members::of_body(object.as_bytes())
            .map(|members| parts_of(&members, |made_by, part| terms.gets(made_by, part)));
        read.unwrap_or_default()
    }

    fn members(&self, terms: ChatTerms, parts: &[PlacedPart]) -> String {
        let mut members = String::new();
        let mut put = |name: &str, json: &str| {
            members.extend([",\"", name, "\":", json]);
        };
        let (has_calls, details) = (self.place.has_calls, details(parts));
        let is_asked = has_calls || !terms.is_hosted;
        let as_sent = self.reasoning.filter(|_| self.place.is_as_sent);
        let reasoning = self.reasoning.filter(|_| is_asked);
        match (terms.history.reasoning_param, reasoning) {
            (ReasoningParam::AsSent, _) => {
                if let Some(reasoning) = as_sent {
                    put("reasoning_content", reasoning);
                }
            }
            (ReasoningParam::ReasoningContent, Some(reasoning)) => put("reasoning_content", reasoning),
            (ReasoningParam::ReasoningContent, None) if terms.is_hosted && has_calls => {
                put("reasoning_content", "\"\"");
            }
            (ReasoningParam::Reasoning, Some(reasoning)) => put("reasoning", reasoning),
            (ReasoningParam::ReasoningDetails, Some(reasoning)) if details.is_empty() => {
                put("reasoning", reasoning);
            }
            (ReasoningParam::None | ReasoningParam::ReasoningDetails, _)
            | (ReasoningParam::ReasoningContent | ReasoningParam::Reasoning, None) => {}
        }
        if !details.is_empty() {
            put("reasoning_details", &Json::from(details).to_string());
        }
        for PlacedPart(_, part) in parts {
            if let CarriedPart::TextSignature { signature } = part {
                members.push_str(&extra_content(signature));
                break;
            }
        }
        members
    }
}

/// Returns the elements of `reasoning_details` among the parts.
fn details(parts: &[PlacedPart]) -> Vec<Json> {
    let detail = |PlacedPart(_, part): &PlacedPart| match part {
        CarriedPart::Detail(detail) => serde_json::to_value(detail).ok(),
        CarriedPart::Thought { .. }
        | CarriedPart::Redacted { .. }
        | CarriedPart::Encrypted { .. }
        | CarriedPart::CallSignature { .. }
        | CarriedPart::TextSignature { .. } => None,
    };
    parts.iter().filter_map(detail).collect()
}

/// Writes the member with Google's signature, with a comma before it.
fn extra_content(signature: &str) -> String {
    format!(r#","extra_content":{{"google":{{"thought_signature":{}}}}}"#, Json::from(signature))
}
