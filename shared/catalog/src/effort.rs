//! Amounts of reasoning that a request may ask for, and the amounts that a model takes.

use serde::{Deserialize, Serialize};

/// Amount of reasoning, in the words of the APIs, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

impl Effort {
    /// The words of every amount, least first.
    pub const WORDS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    /// Every amount, in the order of [`Self::WORDS`].
    const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];
    /// Amounts of a model whose entry lists none.
    pub(super) const USUAL: [Self; 2] = [Self::Low, Self::High];

    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effort| effort.word() == word)
    }

    pub const fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// Finds the nearest of these amounts. There is none halfway between two of them, where the model's own default
    /// fits better.
    pub fn nearest(self, taken: &[Self]) -> Option<Self> {
        let distance = |other: Self| (other as usize).abs_diff(self as usize);
        let least = taken.iter().map(|other| distance(*other)).min()?;
        let mut nearest = taken.iter().filter(|other| distance(**other) == least);
        match (nearest.next(), nearest.next()) {
            (Some(only), None) => Some(*only),
            (_, Some(_)) | (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_amount_has_its_word() {
        assert_eq!(Effort::ALL.map(Effort::word), Effort::WORDS);
        assert_eq!(Effort::WORDS.map(Effort::read), Effort::ALL.map(Some));
        assert_eq!(Effort::read("Low"), None);
    }

    #[test]
    fn the_nearest_amount_is_taken_and_halfway_none() {
        let nearest = |taken: &[Effort]| Effort::ALL.map(|effort| effort.nearest(taken));
        let (low, high) = (Some(Effort::Low), Some(Effort::High));
        assert_eq!(nearest(&Effort::USUAL), [low, low, low, None, high, high, high]);
        assert_eq!(nearest(&Effort::ALL), Effort::ALL.map(Some));
        assert_eq!(nearest(&[Effort::Medium]), [Some(Effort::Medium); 7]);
        assert_eq!(nearest(&[]), [None; 7]);
    }
}
