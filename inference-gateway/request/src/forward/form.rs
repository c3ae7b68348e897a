//! Forms of a request's body: one for each way in which an upstream of the model is asked.

use std::fmt::Write as _;

use bytes::Bytes;
use reply::Reply;
use shared::ids::AccountId;
use shared_catalog::{Model, Upstream, UpstreamApi};

use crate::passage::PassedBody;

/// Form of a body for an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyForm {
    /// As all dialects are checked: a chat, or a request for embeddings.
    Checked,
    /// The chat, written for another API.
    Written {
        /// The upstream's API.
        api: UpstreamApi,
        /// True if the body says what the vendor's cache is to keep.
        cache_breakpoints: bool,
    },
    /// The client's own body, passed on to an upstream of the client's API.
    Passed(UpstreamApi),
}

impl BodyForm {
    /// The form in which this upstream is asked for such an answer.
    pub fn of(upstream: &Upstream, reply: &Reply) -> Self {
        if !reply.is_of_chat() {
            return Self::Checked;
        }
        let client = reply.api();
        match upstream.api_for(client) {
            UpstreamApi::Chat => Self::Checked,
            api if api == client => Self::Passed(api),
            api @ UpstreamApi::Responses => Self::Written { api, cache_breakpoints: false },
            api @ UpstreamApi::Messages => {
                Self::Written { api, cache_breakpoints: upstream.cache_breakpoints }
            }
        }
    }

    /// The forms that the upstreams of a model need, each once.
    pub(crate) fn all(model: &Model, reply: &Reply) -> Vec<Self> {
        let mut forms = Vec::with_capacity(1);
        for upstream in &model.upstreams {
            let form = Self::of(upstream, reply);
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
        forms
    }

    /// The API that the upstream is asked by.
    pub const fn api(self) -> UpstreamApi {
        match self {
            Self::Checked => UpstreamApi::Chat,
            Self::Written { api, .. } | Self::Passed(api) => api,
        }
    }

    /// Returns whether the client's own body and its own answer pass.
    pub const fn is_passed(self) -> bool {
        match self {
            Self::Passed(_) => true,
            Self::Checked | Self::Written { .. } => false,
        }
    }
}

/// The bodies of a request, without the members of their heads.
#[derive(Clone, Default)]
pub(crate) struct Bodies(Vec<(BodyForm, Body)>);

#[derive(Clone)]
enum Body {
    Whole(Bytes),
    Passed(PassedBody),
}

impl Body {
    const fn rest(&self) -> &Bytes {
        match self {
            Self::Whole(rest) | Self::Passed(PassedBody { rest, .. }) => rest,
        }
    }
}

impl Bodies {
    pub(crate) fn add(&mut self, form: BodyForm, rest: Bytes) {
        self.0.push((form, Body::Whole(rest)));
    }

    pub(crate) fn pass(&mut self, api: UpstreamApi, body: PassedBody) {
        self.0.push((BodyForm::Passed(api), Body::Passed(body)));
    }

    /// The body of this form, behind its head. Empty once the prompt was freed.
    pub(crate) fn rest(&self, form: BodyForm) -> Bytes {
        self.find(form).map(|body| body.rest().clone()).unwrap_or_default()
    }

    /// Writes the members of a head that keep an account's part of a vendor's caches and reports apart.
    pub(crate) fn write_pseudonyms(&self, form: BodyForm, account: AccountId, head: &mut String) {
        const CACHE_KEY: &str = "prompt_cache_key";
        let mut has_key = false;
        if let Some(Body::Passed(body)) = self.find(form) {
            has_key = body.has_text(CACHE_KEY);
            body.write_pseudonyms(account, head);
        }
        if form.api() == UpstreamApi::Responses && !has_key {
            let _ = write!(head, r#","{CACHE_KEY}":"{}""#, crate::pseudonym::pseudonym(account, ""));
        }
    }

    /// Returns whether there is no body but the checked one.
    pub(crate) fn are_checked(&self) -> bool {
        self.0.iter().all(|(form, _)| *form == BodyForm::Checked)
    }

    /// Bytes of all bodies.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(_, body)| body.rest().len()).sum()
    }

    fn find(&self, form: BodyForm) -> Option<&Body> {
        self.0.iter().find(|(known, _)| *known == form).map(|(_, body)| body)
    }
}
