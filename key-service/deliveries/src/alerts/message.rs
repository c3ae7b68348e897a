//! A message: what happened, and what to do.

use domain::alert::Alert;
use serde::{Deserialize, Serialize};

/// Maximum number of lines that say what happened.
pub(crate) const MAX_LINES: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AlertMessage {
    pub title: String,
    /// What happened, in detail.
    pub lines: Vec<String>,
    /// What to do.
    pub advice: String,
    /// Page about it, if the service knows its public address.
    pub url: Option<String>,
}

impl AlertMessage {
    /// Makes a message whose title begins with the alert's label.
    pub(crate) fn new(alert: &Alert, title: &str, lines: Vec<String>, advice: &str) -> Self {
        let label = if alert.label.is_empty() { "Faregate" } else { &alert.label };
        Self { title: format!("{label}: {title}"), lines, advice: advice.to_owned(), url: None }
    }

    pub(crate) fn test(alert: &Alert) -> Self {
        let lines = vec!["Messages of this alert arrive here.".to_owned()];
        Self::new(alert, "this is a test", lines, "There is nothing to do.")
    }

    #[must_use]
    pub(crate) fn with_url(self, url: Option<String>) -> Self {
        Self { url, ..self }
    }

    /// Returns everything but title and link as plain text.
    pub(crate) fn text(&self) -> String {
        let lines = self.lines.iter().chain((!self.advice.is_empty()).then_some(&self.advice));
        lines.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    #[expect(clippy::expect_used, reason = "texts always have a form in JSON")]
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a message is JSON")
    }

    pub(crate) fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
