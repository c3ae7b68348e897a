//! Forms of a request's body. The upstreams of one model may need several.

use std::fmt::Write as _;

use bytes::Bytes;
use reply::{Reply, carried::ServerId};
use shared::ids::AccountId;
use shared_catalog::{Model, Upstream, UpstreamApi};

use crate::{draft::ChatTerms, names::pseudonym::pseudonym, passage::PassedBody};

/// Form of a body for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// The form that all dialects are checked into: a chat with certain terms, or a request for embeddings.
    Checked(ChatTerms),
    /// The chat, written for another API.
    Written {
        api: UpstreamApi,
        /// Whether the body marks what the vendor's cache should keep.
        cache_breakpoints: bool,
        is_separate: bool,
        /// The server, if the conversation has parts to return to it.
        server: Option<ServerId>,
    },
    /// The client's own body, passed on to an upstream with the client's API.
    Passed {
        api: UpstreamApi,
        /// Index of the model's first upstream that gets the same members.
        like: usize,
        is_separate: bool,
    },
}

/// A body for an upstream in two pieces.
#[derive(Clone)]
pub struct BodyPieces {
    /// The members that depend on the upstream.
    pub head: Bytes,
    pub rest: Bytes,
}

impl BodyForm {
    /// Returns the form for an upstream and a kind of answer. `carried` lists the servers whose parts the conversation
    /// carries.
    pub fn of(upstream: &Upstream, reply: &Reply, carried: &[ServerId]) -> Self {
        if !reply.is_of_chat() {
            return Self::Checked(ChatTerms::NO_CHAT);
        }
        let client = reply.api();
        let server = if carried.is_empty() { None } else { Some(ServerId::of(upstream)) };
        let server = server.filter(|server| carried.contains(server));
        match upstream.api_for(client) {
            UpstreamApi::Chat => Self::Checked(ChatTerms::of(upstream, server)),
            api if api == client => {
                let is_separate = api == UpstreamApi::Messages && !upstream.share_cache;
                Self::Passed { api, like: upstream.passes_like, is_separate }
            }
            api @ UpstreamApi::Responses => {
                Self::Written { api, cache_breakpoints: false, is_separate: false, server }
            }
            api @ UpstreamApi::Messages => {
                let (cache_breakpoints, is_separate) = (upstream.cache_breakpoints, !upstream.share_cache);
                Self::Written { api, cache_breakpoints, is_separate, server }
            }
        }
    }

    /// Lists the forms that a model's upstreams need, each once.
    pub(crate) fn all(model: &Model, reply: &Reply, carried: &[ServerId]) -> Vec<Self> {
        let mut forms = Vec::with_capacity(1);
        for upstream in &model.upstreams {
            let form = Self::of(upstream, reply, carried);
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
        forms
    }

    pub const fn api(self) -> UpstreamApi {
        match self {
            Self::Checked(_) => UpstreamApi::Chat,
            Self::Written { api, .. } | Self::Passed { api, .. } => api,
        }
    }

    /// Returns the chat's terms, if this is a checked chat.
    pub(crate) const fn chat(self) -> Option<ChatTerms> {
        match self {
            Self::Checked(terms) => Some(terms),
            Self::Written { .. } | Self::Passed { .. } => None,
        }
    }

    /// Returns the server that gets its parts back, if the body is written for another API.
    pub(crate) const fn server(self) -> Option<ServerId> {
        match self {
            Self::Written { server, .. } => server,
            Self::Checked(_) | Self::Passed { .. } => None,
        }
    }

    /// Returns whether the client's body and the upstream's answer are passed on.
    pub const fn is_passed(self) -> bool {
        match self {
            Self::Passed { .. } => true,
            Self::Checked(_) | Self::Written { .. } => false,
        }
    }

    /// Returns whether the system prompt begins with a block that differs by account, so that accounts do not share the
    /// vendor's cache. The head of the body ends with this block.
    pub(crate) const fn is_separate(self) -> bool {
        match self {
            Self::Checked(_) => false,
            Self::Written { is_separate, .. } | Self::Passed { is_separate, .. } => is_separate,
        }
    }
}

/// Opens the system prompt with an account's block, or with a block of the same length.
pub(crate) fn open_system(account: Option<AccountId>) -> String {
    let name = account.map_or_else(|| "0".repeat(SCOPE_DIGITS), |account| pseudonym(account, SCOPE));
    format!(r#","system":[{{"type":"text","text":"Account {}."}}"#, &name[..SCOPE_DIGITS])
}

/// The text whose pseudonym separates an account in caches.
const SCOPE: &str = "scope of the vendor's cache";
/// Digits of that pseudonym: few, and still unlikely to be equal for two accounts.
const SCOPE_DIGITS: usize = 32;
/// Maximum number of tokens by which two such blocks differ. It is added to a prompt that was counted with another
/// block.
pub(crate) const SCOPE_TOKENS: u64 = SCOPE_DIGITS as u64;

/// Bodies of a request, without their heads.
#[derive(Clone, Default)]
pub(crate) struct Bodies(Vec<(BodyForm, WrittenBody)>);

#[derive(Clone)]
enum WrittenBody {
    Whole(Bytes),
    Passed(PassedBody),
}

impl WrittenBody {
    const fn rest(&self) -> &Bytes {
        match self {
            Self::Whole(rest) | Self::Passed(PassedBody { rest, .. }) => rest,
        }
    }
}

impl Bodies {
    pub(crate) fn add(&mut self, form: BodyForm, rest: Bytes) {
        self.0.push((form, WrittenBody::Whole(rest)));
    }

    pub(crate) fn pass(&mut self, form: BodyForm, body: PassedBody) {
        self.0.push((form, WrittenBody::Passed(body)));
    }

    /// Returns the body of this form without its head; empty once the prompt was freed.
    pub(crate) fn rest(&self, form: BodyForm) -> Bytes {
        self.find(form).map(|body| body.rest().clone()).unwrap_or_default()
    }

    /// Writes the head's members that separate accounts in a vendor's caches and reports.
    pub(crate) fn write_pseudonyms(&self, form: BodyForm, account: AccountId, head: &mut String) {
        const CACHE_KEY: &str = "prompt_cache_key";
        let mut has_key = false;
        if let Some(WrittenBody::Passed(body)) = self.find(form) {
            has_key = body.has_text(CACHE_KEY);
            body.write_pseudonyms(account, head);
        }
        if form.api() == UpstreamApi::Responses && !has_key {
            let _ = write!(head, r#","{CACHE_KEY}":"{}""#, pseudonym(account, ""));
        }
    }

    /// Returns whether the checked body is the only one.
    pub(crate) fn are_checked(&self) -> bool {
        self.0.iter().all(|(form, _)| matches!(form, BodyForm::Checked(_)))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(_, body)| body.rest().len()).sum()
    }

    #[cfg(test)]
    pub(crate) fn first_form(&self) -> Option<BodyForm> {
        self.0.first().map(|(form, _)| *form)
    }

    fn find(&self, form: BodyForm) -> Option<&WrittenBody> {
        self.0.iter().find(|(known, _)| *known == form).map(|(_, body)| body)
    }
}
