//! The token that authenticates calls between the services. It may be replaced while they run.

use std::sync::Arc;

use http::HeaderValue;
use shared::secret::{ExposeSecret, SecretString, same};

use crate::current::Current;

/// The internal token and, during a rotation, the previous one.
#[derive(Clone)]
pub struct InternalTokens {
    /// Sent with the calls of this process.
    current: SecretString,
    header: HeaderValue,
    /// Still accepted during a rotation.
    previous: Option<SecretString>,
}

impl InternalTokens {
    /// Returns `None` if a header cannot carry the token.
    pub fn new(current: SecretString, previous: Option<SecretString>) -> Option<Self> {
        let mut header = HeaderValue::try_from(current.expose_secret()).ok()?;
        header.set_sensitive(true);
        Some(Self { current, header, previous })
    }
}

/// The internal tokens in use. Cheap to clone.
#[derive(Clone)]
pub struct InternalToken(Arc<Current<InternalTokens>>);

impl InternalToken {
    pub fn new(tokens: InternalTokens) -> Self {
        Self(Arc::new(Current::new(tokens)))
    }

    /// Replaces the tokens. Calls in flight keep the old ones.
    pub fn replace(&self, tokens: InternalTokens) {
        self.0.replace(tokens);
    }

    /// Returns the header value for a call, marked as sensitive so that logs hide it.
    pub fn header(&self) -> HeaderValue {
        self.0.get().header.clone()
    }

    /// Returns whether a caller presented the current or the previous token. A missing token is never accepted.
    pub fn accepts(&self, presented: Option<&str>) -> bool {
        let tokens = self.0.get();
        let Some(presented) = presented else { return false };
        // Both are always compared, so that the timing does not reveal which one matches.
        let is_current = same(presented, tokens.current.expose_secret());
        let is_previous =
            tokens.previous.as_ref().is_some_and(|previous| same(presented, previous.expose_secret()));
        is_current | is_previous
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_and_the_one_before_are_accepted_and_nothing_else() {
        let tokens = |current: &str, previous: Option<&str>| {
            InternalTokens::new(current.into(), previous.map(Into::into)).unwrap()
        };
        let token = InternalToken::new(tokens("between-the-services", None));
        let accepted = |text| token.accepts(Some(text));
        assert!(accepted("between-the-services") && !accepted("") && !token.accepts(None));
        token.replace(tokens("a-newer-one-between", Some("between-the-services")));
        assert!(accepted("between-the-services") && accepted("a-newer-one-between"));
        assert_eq!(token.header(), "a-newer-one-between");
        token.replace(tokens("a-newer-one-between", None));
        assert!(!accepted("between-the-services"));
        assert!(InternalTokens::new("line\nbreak".into(), None).is_none());
    }
}
