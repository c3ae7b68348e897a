//! A body that is passed on to an upstream of its own API. It stays unchanged, except for members that cost money
//! outside the usage, name the caller, or depend on the upstream. Such members are cut out; if the upstream needs one
//! of them, it is written into the head. Members that the API's vendor does not document are passed on only to the
//! vendor's own servers, and to servers for which the catalogue names them. Another server may give such a member a
//! different meaning.

mod cuts;
mod notes;

use std::ops::Range;

use bytes::Bytes;
use raw_json::{Members, Value};
use shared::{error::ApiError, ids::AccountId, json::Kind};
use shared_catalog::{Effort, Upstream, UpstreamApi};

use crate::{
    names::{
        dropped::DroppedNames,
        known::{check_depth, refuse_lookalike},
        pseudonym::pseudonym,
    },
    trimmed::trimmed,
};
use cuts::Cut;
pub(crate) use cuts::CutWhen;
pub(crate) use notes::PassageNotes;
use notes::kept;

/// Members that say how to use tools.
const OF_TOOLS: [&str; 3] = ["tools", "tool_choice", "parallel_tool_calls"];

/// The top-level members of an API.
pub(crate) struct ApiMembers {
    /// Documented members that are passed on.
    pub(crate) passed: &'static [&'static str],
    /// Members that a body omits when it is passed on.
    pub(crate) left: &'static [(&'static str, Left)],
    /// Members that were already refused.
    pub(crate) refused: &'static [&'static str],
    /// Documented members of object members.
    pub(crate) nested: &'static [(&'static str, &'static [&'static str])],
    /// Members whose depth is checked when they are read.
    pub(crate) read: &'static [&'static str],
    /// Returns whether a member requests only a compaction. If it does more, notes its compacting parts.
    pub(crate) compacts: Compacts,
}

pub(crate) type Compacts = fn(&str, &Value<'_, '_>, &mut PassageNotes) -> Result<bool, ApiError>;

impl ApiMembers {
    /// Lists all names that the API's servers know.
    fn names(&self) -> impl Iterator<Item = &'static &'static str> {
        let left = self.left.iter().map(|(name, _)| name);
        self.passed.iter().chain(left).chain(self.refused)
    }
}

/// What happens to a member that a body omits when it is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// It moves to the head.
    ToHead,
    /// The head gets a pseudonym, since the text names the caller or its cache.
    Pseudonym,
    /// It is dropped, and the answer says so.
    Out,
}

/// A client's body that may be passed on, and how to edit it.
pub(crate) struct Passage {
    body: Bytes,
    /// Top-level members, in order.
    members: Vec<PassedMember>,
    /// Location and kind of the system prompt.
    system: Option<(Range<usize>, Kind)>,
    cuts: Vec<Cut>,
    /// The requested effort and its location.
    effort: Option<(Effort, Range<usize>)>,
    /// Members of the head that replace texts of the caller. Each has the member's name, and the caller's text or, if
    /// that is long, its hash.
    callers_texts: Vec<(&'static str, String)>,
    pub(crate) dropped_tools: DroppedNames,
    /// Error for servers that may not compact the conversation.
    pub(crate) compaction: Option<ApiError>,
}

/// A top-level member of a body. It extends from the end of the preceding comma to the end of the member's value.
struct PassedMember {
    at: Range<usize>,
    fate: MemberFate,
    /// Name of a member that may be left out.
    name: String,
}

/// What happens to a member. This may depend on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberFate {
    Kept,
    /// The member, or a replacement for it, moves to the head.
    ToHead,
    Out,
    /// The vendor does not document it.
    Unknown,
    Compaction,
    /// It is the system prompt.
    System,
}

/// What determines how a body is passed on to a server.
#[derive(Clone, Copy)]
pub(crate) struct PassTerms<'u> {
    /// Whether the server belongs to the API's vendor, so that undocumented members are passed on.
    is_vendors_own: bool,
    members: &'u [String],
    pub(crate) compaction: bool,
    /// Whether the body begins with a block that separates accounts in the vendor's cache.
    is_separate: bool,
}

impl<'u> PassTerms<'u> {
    pub(crate) fn of(upstream: &'u Upstream, api: UpstreamApi, is_separate: bool) -> Self {
        Self {
            is_vendors_own: upstream.is_vendors_own(api),
            members: &upstream.pass_members,
            compaction: upstream.compaction,
            is_separate,
        }
    }

    fn leaves(&self, member: &PassedMember) -> bool {
        match member.fate {
            MemberFate::Kept => false,
            MemberFate::ToHead | MemberFate::Out => true,
            MemberFate::Unknown => !self.passes(&member.name),
            MemberFate::Compaction => !self.compaction,
            MemberFate::System => self.is_separate,
        }
    }

    fn cuts(&self, cut: &Cut) -> bool {
        match cut.when {
            CutWhen::Always => true,
            CutWhen::Unknown => !cut.names.iter().all(|name| self.passes(name)),
            CutWhen::Compaction => !self.compaction,
            CutWhen::Separate => self.is_separate,
        }
    }

    fn passes(&self, name: &str) -> bool {
        self.is_vendors_own || self.members.iter().any(|passed| passed == name)
    }
}

impl PassageNotes {
    /// Makes the passage of a body with these members.
    pub(crate) fn finish(
        mut self,
        body: &Bytes,
        members: &Members<'_, '_>,
        api: &ApiMembers,
    ) -> Result<Passage, ApiError> {
        // Vendors refuse a tool choice in a request without tools.
        let is_toolless = !self.dropped_tools.is_empty() && !self.has_tools;
        let mut passed = Vec::new();
        let mut system = None;
        let mut start = 1 + memchr::memchr(b'{', body).unwrap_or(0);
        for (name, value) in members.iter() {
            refuse_lookalike(name, &value, api.names())?;
            if !api.read.contains(&name) {
                check_depth(&value)?;
            }
            let fate = match api.left.iter().find(|(known, _)| *known == name) {
                Some((_, Left::ToHead)) => MemberFate::ToHead,
                Some((_, Left::Pseudonym)) if self.names_caller(name) => MemberFate::ToHead,
                Some((_, Left::Pseudonym | Left::Out)) => MemberFate::Out,
                None if is_toolless && OF_TOOLS.contains(&name) => MemberFate::ToHead,
                None if !api.passed.contains(&name) => MemberFate::Unknown,
                None if (api.compacts)(name, &value, &mut self)? => MemberFate::Compaction,
                None if name == "system" => MemberFate::System,
                None => MemberFate::Kept,
            };
            if let Some((_, known)) = api.nested.iter().find(|(known, _)| *known == name) {
                self.only(&value, name, known)?;
            }
            let at = self.place(value.raw());
            let end = at.end;
            if fate == MemberFate::System {
                system = Some((at, value.kind()));
            }
            let is_named = !matches!(fate, MemberFate::Kept | MemberFate::ToHead | MemberFate::System);
            let name = if is_named { kept(name) } else { String::new() };
            passed.push(PassedMember { at: start..end, fate, name });
            start = end + memchr::memchr(b',', &body[end..]).map_or(0, |comma| comma + 1);
        }
        let Self { mut cuts, effort, callers_texts, dropped_tools, compaction, .. } = self;
        cuts.sort_unstable_by_key(|cut| cut.at.start);
        let members = passed;
        Ok(Passage {
            body: body.clone(),
            members,
            system,
            cuts,
            effort,
            callers_texts,
            dropped_tools,
            compaction,
        })
    }
}

/// The body that is passed on, without its head and starting with a comma, and what the head needs from it.
#[derive(Clone)]
pub(crate) struct PassedBody {
    pub(super) rest: Bytes,
    callers_texts: Vec<(&'static str, String)>,
}

impl Passage {
    /// Returns the number of bytes in the received body.
    pub(super) const fn received_bytes(&self) -> usize {
        self.body.len()
    }

    /// Counts the bytes that replace parts of the body, and the bytes in the names of members that may be omitted.
    pub(super) fn replaced_bytes(&self) -> usize {
        let cut =
            |cut: &Cut| cut.with.len() + cut.names.iter().map(String::len).sum::<usize>() + size_of::<Cut>();
        let member = |member: &PassedMember| member.name.len() + size_of::<PassedMember>();
        self.cuts.iter().map(cut).sum::<usize>() + self.members.iter().map(member).sum::<usize>()
    }

    /// Writes the body for a server of a model that accepts these efforts. Adds the names of what the body omits to
    /// `dropped`.
    pub(super) fn write(
        &self,
        terms: PassTerms<'_>,
        efforts: &[Effort],
        dropped: &mut DroppedNames,
    ) -> PassedBody {
        let effort = self.effort.as_ref().filter(|(effort, _)| !efforts.contains(effort));
        // If the model accepts no matching effort, its default applies.
        let word = effort.and_then(|(effort, _)| effort.nearest(efforts));
        let word = word.map(|word| format!("\"{}\"", word.word()));
        let mut cuts: Vec<(&Range<usize>, &str)> = Vec::with_capacity(self.cuts.len() + 1);
        for cut in self.cuts.iter().filter(|cut| terms.cuts(cut)) {
            cuts.push((&cut.at, &cut.with));
            cut.names.iter().for_each(|name| dropped.add(name));
        }
        if let Some((_, at)) = effort {
            cuts.push((at, word.as_deref().unwrap_or("null")));
            cuts.sort_unstable_by_key(|(at, _)| at.start);
        }
        let mut rest = Vec::with_capacity(self.body.len());
        if terms.is_separate {
            self.write_system(&mut rest);
        }
        let mut cuts = cuts.into_iter().peekable();
        for Range { mut start, end } in self.kept(terms, dropped) {
            rest.push(b',');
            while let Some((at, with)) = cuts.next_if(|(at, _)| at.start < end) {
                if at.start >= start {
                    rest.extend_from_slice(&self.body[start..at.start]);
                    rest.extend_from_slice(with.as_bytes());
                    start = at.end;
                }
            }
            rest.extend_from_slice(&self.body[start..end]);
        }
        rest.push(b'}');
        PassedBody { rest: trimmed(rest), callers_texts: self.callers_texts.clone() }
    }

    /// Lists the parts of the body that stay, in order.
    fn kept(&self, terms: PassTerms<'_>, dropped: &mut DroppedNames) -> Vec<Range<usize>> {
        let mut kept = Vec::<Range<usize>>::new();
        let mut goes_on = false;
        for member in &self.members {
            let is_left = terms.leaves(member);
            match kept.last_mut() {
                Some(last) if goes_on && !is_left => last.end = member.at.end,
                Some(_) | None if !is_left => kept.push(member.at.clone()),
                Some(_) | None => dropped.add(&member.name),
            }
            goes_on = !is_left;
        }
        kept
    }

    /// Writes the system prompt after the block that ends the head.
    fn write_system(&self, rest: &mut Vec<u8>) {
        if let Some((at, kind)) = &self.system {
            let system = &self.body[at.clone()];
            match kind {
                // The vendor refuses empty texts.
                Kind::String if system != br#""""# => {
                    rest.extend_from_slice(br#",{"type":"text","text":"#);
                    rest.extend_from_slice(system);
                    rest.push(b'}');
                }
                Kind::Array => {
                    let blocks = system[1..system.len() - 1].trim_ascii();
                    if !blocks.is_empty() {
                        rest.push(b',');
                        rest.extend_from_slice(blocks);
                    }
                }
                Kind::String | Kind::Null | Kind::Bool | Kind::Number | Kind::Object => {}
            }
        }
        rest.push(b']');
    }
}

impl PassedBody {
    /// Writes the members of the head that replace the caller's texts.
    pub(super) fn write_pseudonyms(&self, account: AccountId, head: &mut String) {
        for (name, text) in &self.callers_texts {
            let pseudonym = pseudonym(account, text);
            let member = match *name {
                "metadata" => format!(r#","metadata":{{"user_id":"{pseudonym}"}}"#),
                name => format!(r#","{name}":"{pseudonym}""#),
            };
            head.push_str(&member);
        }
    }

    /// Returns whether the head has a member that replaces the caller's text of this name.
    pub(super) fn has_text(&self, name: &str) -> bool {
        self.callers_texts.iter().any(|(known, _)| *known == name)
    }
}

#[cfg(test)]
mod tests;
