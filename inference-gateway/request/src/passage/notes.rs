//! Edits that a parser notes while it reads a body, to apply if the body is passed on.

use std::ops::Range;

use raw_json::{ANY_NUMBER, Members, Value};
use shared::{
    error::{ApiError, Code},
    json::Kind,
};
use shared_catalog::Effort;

use super::cuts::{self, Cut, CutWhen};
use crate::names::{
    dropped::DroppedNames,
    known::{self, TOOLS, refuse_lookalike},
    pseudonym::kept_name,
};

/// Member that tells a vendor what to cache.
const CACHE_CONTROL: &str = "cache_control";
/// Maximum number of parts cut out of a body: far more than any client has tools.
const MOST_CUTS: usize = 8192;
/// Number of characters kept from an unknown member's name. Names in the catalogue are shorter.
const KEPT_NAME: usize = 65;

#[derive(Default)]
pub(crate) struct PassageNotes {
    /// Address of the body in memory, to locate values in it.
    address: usize,
    pub(super) cuts: Vec<Cut>,
    pub(super) effort: Option<(Effort, Range<usize>)>,
    pub(super) callers_texts: Vec<(&'static str, String)>,
    /// Tools that the vendor runs and that are removed.
    pub(super) dropped_tools: DroppedNames,
    pub(super) has_tools: bool,
    /// Error for servers that may not compact the conversation.
    pub(super) compaction: Option<ApiError>,
}

impl PassageNotes {
    pub(crate) fn of(body: &[u8]) -> Self {
        Self { address: body.as_ptr() as usize, ..Self::default() }
    }

    pub(crate) fn replace(&mut self, value: &Value<'_, '_>, with: &str) {
        let at = self.place(value.raw());
        self.cuts.push(Cut { at, with: with.to_owned(), when: CutWhen::Always, names: Vec::new() });
    }

    /// Notes a call's id to replace. Once half of all cuts are used, further ids stay unchanged.
    pub(crate) fn replace_id(&mut self, id: &Value<'_, '_>, with: &str) {
        if self.cuts.len() < MOST_CUTS / 2 {
            self.replace(id, with);
        }
    }

    /// Notes a part to cut out. A cut takes far more memory than the part may take in the body, so cuts are bounded.
    fn cut(&mut self, part: &Value<'_, '_>, cut: Cut) -> Result<(), ApiError> {
        if self.cuts.len() >= MOST_CUTS {
            let problem = format!("more than {MOST_CUTS} of its parts cannot be sent to the model");
            return Err(part.error(Code::InvalidValue, &problem));
        }
        self.cuts.push(cut);
        Ok(())
    }

    pub(crate) fn effort(&mut self, value: &Value<'_, '_>) -> Result<(), ApiError> {
        self.effort = Effort::read(&value.string()?).map(|effort| (effort, self.place(value.raw())));
        Ok(())
    }

    /// Notes a text that names the caller's user or cache, and the head's member for it.
    pub(crate) fn name_caller(&mut self, member: &'static str, text: &str) {
        self.callers_texts.push((member, kept_name(text)));
    }

    /// Notes a part that requests only a summary of the conversation.
    pub(crate) fn compacts(&mut self, part: &Value<'_, '_>) {
        let problem = "this model does not compact conversations; summarise with a request of your own";
        self.compaction.get_or_insert_with(|| part.error(Code::UnsupportedParameter, problem));
    }

    /// Removes the tools of a list for which `dropped` returns a type, and names them.
    pub(crate) fn tools(
        &mut self,
        list: &Value<'_, '_>,
        mut dropped: impl FnMut(&Members<'_, '_>) -> Result<Option<String>, ApiError>,
    ) -> Result<(), ApiError> {
        let (mut is_kept, mut has_unknown) = (Vec::new(), false);
        list.objects_if_any(ANY_NUMBER, |tool| {
            known::check_tool(tool)?;
            let left = dropped(tool)?;
            is_kept.push(left.is_none());
            if let Some(kind) = left {
                self.dropped_tools.add(&kind);
            } else if let Some(cache) = tool.get(CACHE_CONTROL) {
                // Without the mark, the vendor does not cache the tools separately from the system prompt after them.
                let (at, with) = (self.place(cache.raw()), "null".to_owned());
                self.cut(&cache, Cut { at, with, when: CutWhen::Separate, names: Vec::new() })?;
            }
            has_unknown |= has_unknown_members(tool)?;
            Ok(())
        })?;
        self.has_tools |= is_kept.contains(&true);
        if is_kept.contains(&false) {
            self.cut_elements(list, &is_kept, CutWhen::Always, &[])?;
        }
        if has_unknown {
            self.cut_members_of_each(list)?;
        }
        Ok(())
    }

    /// Cuts unknown members out of each tool of a list, and of the tools in a namespace.
    fn cut_members_of_each(&mut self, tools: &Value<'_, '_>) -> Result<(), ApiError> {
        tools.each_if_any(ANY_NUMBER, |tool| {
            self.only(&tool, "tools", TOOLS)?;
            tool.object()?.get("tools").map_or(Ok(()), |inner| self.cut_members_of_each(&inner))
        })?;
        Ok(())
    }

    /// Cuts out of a list the elements that `is_kept` rejects.
    pub(crate) fn cut_elements(
        &mut self,
        list: &Value<'_, '_>,
        is_kept: &[bool],
        when: CutWhen,
        names: &[String],
    ) -> Result<(), ApiError> {
        let (mut ends, mut kept, base) = (Vec::new(), is_kept.iter(), self.place(list.raw()).start);
        list.each_if_any(ANY_NUMBER, |element| {
            ends.push((self.place(element.raw()).end - base, kept.next() == Some(&true)));
            Ok(())
        })?;
        for (_, at) in cuts::removals(list.raw(), &ends) {
            let at = base + at.start..base + at.end;
            self.cut(list, Cut { at, with: String::new(), when, names: names.to_vec() })?;
        }
        Ok(())
    }

    /// Cuts unknown members out of an object, for servers that must not get them. Other values stay unchanged.
    pub(crate) fn only(
        &mut self,
        object: &Value<'_, '_>,
        path: &str,
        known: &[&str],
    ) -> Result<(), ApiError> {
        if object.kind() != Kind::Object {
            return Ok(());
        }
        let (members, base) = (object.object()?, self.place(object.raw()).start);
        let (mut ends, mut names) = (Vec::new(), Vec::new());
        for (name, value) in members.iter() {
            refuse_lookalike(name, &value, known)?;
            ends.push((self.place(value.raw()).end - base, known.contains(&name)));
            names.push(format!("{path}.{}", kept(name)));
        }
        if !ends.iter().any(|(_, is_known)| *is_known) {
            // If no member is known, the others can only be cut out together.
            let at = base + 1..base + object.raw().len() - 1;
            if !ends.is_empty() {
                self.cut(object, Cut { at, with: String::new(), when: CutWhen::Unknown, names })?;
            }
            return Ok(());
        }
        for (place, at) in cuts::removals(object.raw(), &ends) {
            let (at, names) = (base + at.start..base + at.end, vec![std::mem::take(&mut names[place])]);
            self.cut(object, Cut { at, with: String::new(), when: CutWhen::Unknown, names })?;
        }
        Ok(())
    }

    /// Returns the location of a value in the body.
    pub(super) fn place(&self, raw: &str) -> Range<usize> {
        let start = (raw.as_ptr() as usize).saturating_sub(self.address);
        start..start + raw.len()
    }

    pub(super) fn names_caller(&self, member: &str) -> bool {
        self.callers_texts.iter().any(|(known, _)| *known == member)
    }
}

/// Returns whether a tool, or one in a namespace, has undocumented members.
fn has_unknown_members(tool: &Members<'_, '_>) -> Result<bool, ApiError> {
    if tool.iter().any(|(name, _)| !TOOLS.contains(&name)) {
        return Ok(true);
    }
    let Some(inner) = tool.get("tools") else { return Ok(false) };
    let mut found = false;
    inner.objects_if_any(ANY_NUMBER, |tool| {
        found |= has_unknown_members(tool)?;
        Ok(())
    })?;
    Ok(found)
}

/// Returns the kept part of an unknown member's name.
pub(super) fn kept(name: &str) -> String {
    name.chars().take(KEPT_NAME).collect()
}
