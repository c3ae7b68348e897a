//! A body that is passed on to an upstream of its own API. It stays as it came, except for members that cost money
//! beyond the usage, name the caller, or depend on the upstream. These are cut out, and the head before the body has
//! those that stay.

use std::ops::Range;

use bytes::Bytes;
use raw_json::Splice;
use raw_json::{ANY_NUMBER, Members, Value};
use shared::{error::ApiError, ids::AccountId};
use shared_catalog::Effort;

use crate::{
    names::{
        dropped::DroppedNames,
        pseudonym::{kept_name, pseudonym},
    },
    trimmed::trimmed,
};

/// What happens to a member that a passed body leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The head has it.
    ToHead,
    /// The head has a pseudonym instead of its text, which names the caller or the caller's cache.
    Pseudonym,
    /// It is missing, and the answer says so.
    Out,
}

/// A body to be passed on.
pub(crate) struct Passage {
    body: Bytes,
    /// Parts of the body that stay, in order. Each begins after a comma and ends with a value.
    kept: Vec<Range<usize>>,
    cuts: Vec<Cut>,
    /// Places of the words of effort.
    effort: Option<(Effort, Range<usize>)>,
    /// Members of the head that stand for the caller's texts: their names, with the texts or hashes of long ones.
    callers_texts: Vec<(&'static str, String)>,
    /// Members and tools that are left out.
    pub(crate) dropped_members: DroppedNames,
    pub(crate) dropped_tools: DroppedNames,
}

/// A value inside the body that is replaced.
struct Cut {
    at: Range<usize>,
    with: String,
}

/// Changes of a body that its parser notes while reading it.
#[derive(Default)]
pub(crate) struct PassageNotes {
    /// Address of the body in memory, by which values are located in it.
    address: usize,
    cuts: Vec<Cut>,
    effort: Option<(Effort, Range<usize>)>,
    callers_texts: Vec<(&'static str, String)>,
    /// Tools that the vendor runs, which are removed.
    dropped_tools: DroppedNames,
    has_tools: bool,
}

impl PassageNotes {
    pub(crate) fn of(body: &[u8]) -> Self {
        Self { address: body.as_ptr() as usize, ..Self::default() }
    }

    /// Notes a value to replace.
    pub(crate) fn replace(&mut self, value: &Value<'_, '_>, with: String) {
        let at = self.place(value.raw());
        self.cuts.push(Cut { at, with });
    }

    /// Notes the word of effort.
    pub(crate) fn effort(&mut self, value: &Value<'_, '_>) -> Result<(), ApiError> {
        self.effort = Effort::read(&value.string()?).map(|effort| (effort, self.place(value.raw())));
        Ok(())
    }

    /// Notes a text with which the caller names a user or a cache, and the head's member for it.
    pub(crate) fn name_caller(&mut self, member: &'static str, text: &str) {
        self.callers_texts.push((member, kept_name(text)));
    }

    /// Keeps the tools of a list for which `kept` is true, and names the others.
    pub(crate) fn tools(
        &mut self,
        list: &Value<'_, '_>,
        mut kept: impl FnMut(&Members<'_, '_>) -> Result<Option<String>, ApiError>,
    ) -> Result<(), ApiError> {
        let mut is_kept = Vec::new();
        list.objects_if_any(ANY_NUMBER, |tool| {
            let left = kept(tool)?;
            is_kept.push(left.is_none());
            if let Some(kind) = left {
                self.dropped_tools.add(&kind);
            }
            Ok(())
        })?;
        self.has_tools |= is_kept.contains(&true);
        if !is_kept.contains(&false) {
            return Ok(());
        }
        let (mut splice, mut is_kept) = (Splice::of(list.raw()), is_kept.into_iter());
        list.each_if_any(ANY_NUMBER, |tool| {
            if is_kept.next() == Some(false) {
                splice.remove_element(tool.raw());
            }
            Ok(())
        })?;
        self.replace(list, splice.finish());
        Ok(())
    }

    /// Finds the place of a value in the body.
    fn place(&self, raw: &str) -> Range<usize> {
        let start = (raw.as_ptr() as usize).saturating_sub(self.address);
        start..start + raw.len()
    }

    /// Makes the passage of a body, without the members in `left`.
    pub(crate) fn finish(self, body: &Bytes, members: &Members<'_, '_>, left: &[(&str, Left)]) -> Passage {
        // Vendors refuse a choice of tools if there are none.
        let is_toolless = !self.dropped_tools.is_empty() && !self.has_tools;
        let mut kept = Vec::<Range<usize>>::new();
        let mut dropped_members = DroppedNames::default();
        let mut start = 1 + memchr::memchr(b'{', body).unwrap_or(0);
        let mut goes_on = false;
        for (name, value) in members.iter() {
            let end = self.place(value.raw()).end;
            let leaves = left.iter().find(|(known, _)| *known == name).map(|(_, left)| *left);
            let is_left = leaves.is_some() || (is_toolless && OF_TOOLS.contains(&name));
            if leaves == Some(Left::Out) || (leaves == Some(Left::Pseudonym) && !self.names_caller(name)) {
                dropped_members.add(name);
            }
            match kept.last_mut() {
                Some(last) if goes_on && !is_left => last.end = end,
                Some(_) | None if !is_left => kept.push(start..end),
                Some(_) | None => {}
            }
            goes_on = !is_left;
            start = end + memchr::memchr(b',', &body[end..]).map_or(0, |comma| comma + 1);
        }
        let Self { mut cuts, effort, callers_texts, dropped_tools, .. } = self;
        cuts.sort_unstable_by_key(|cut| cut.at.start);
        Passage { body: body.clone(), kept, cuts, effort, callers_texts, dropped_members, dropped_tools }
    }

    fn names_caller(&self, member: &str) -> bool {
        self.callers_texts.iter().any(|(known, _)| *known == member)
    }
}

/// Members that say how to use tools.
const OF_TOOLS: [&str; 3] = ["tools", "tool_choice", "parallel_tool_calls"];

/// A passed body without its head, beginning with a comma, and what the head needs of it.
#[derive(Clone)]
pub(crate) struct PassedBody {
    pub(super) rest: Bytes,
    callers_texts: Vec<(&'static str, String)>,
}

impl Passage {
    /// Bytes of the received body.
    pub(super) const fn received_bytes(&self) -> usize {
        self.body.len()
    }

    /// Bytes written in place of parts of the body.
    pub(super) fn replaced_bytes(&self) -> usize {
        self.cuts.iter().map(|cut| cut.with.len()).sum()
    }

    /// Writes the body for a model that accepts these words of effort.
    pub(super) fn write(mut self, efforts: &[Effort]) -> PassedBody {
        if let Some((effort, at)) = self.effort.take()
            && !efforts.contains(&effort)
        {
            // Halfway between two words, the model's own default is requested.
            let with = effort.nearest(efforts).map_or_else(|| "null".into(), |e| format!("\"{}\"", e.word()));
            self.cuts.push(Cut { at, with });
            self.cuts.sort_unstable_by_key(|cut| cut.at.start);
        }
        let mut rest = Vec::with_capacity(self.body.len());
        let mut cuts = self.cuts.into_iter().peekable();
        for Range { mut start, end } in self.kept {
            rest.push(b',');
            while let Some(Cut { at, with }) = cuts.next_if(|cut| cut.at.start < end) {
                if at.start >= start {
                    rest.extend_from_slice(&self.body[start..at.start]);
                    rest.extend_from_slice(with.as_bytes());
                    start = at.end;
                }
            }
            rest.extend_from_slice(&self.body[start..end]);
        }
        rest.push(b'}');
        PassedBody { rest: trimmed(rest), callers_texts: self.callers_texts }
    }
}

impl PassedBody {
    /// Writes the members of the head that stand for the caller's texts.
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

    /// Returns whether the head has a member that stands for a text of the caller.
    pub(super) fn has_text(&self, name: &str) -> bool {
        self.callers_texts.iter().any(|(known, _)| *known == name)
    }
}

#[cfg(test)]
mod tests;
