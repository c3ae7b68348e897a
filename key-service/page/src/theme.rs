//! Colours of the pages, as the reader chose them.

/// Colours that a browser asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    System,
    Light,
    Dark,
}

impl Theme {
    pub(crate) const ALL: [Self; 3] = [Self::System, Self::Light, Self::Dark];

    /// Returns the form and cookie value of the choice.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The choice of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|theme| theme.as_str() == text)
    }
}
