//! Reasoning efforts: which efforts a request may ask for, and which a model accepts.

use serde::{Deserialize, Serialize};

/// A reasoning effort, named as in the APIs. The lowest comes first.
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
    /// Names of all efforts, the lowest first.
    pub const WORDS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];
    /// All efforts, in the order of [`Self::WORDS`].
    const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];
    /// Efforts that a model accepts if its entry lists none.
    pub(super) const USUAL: [Self; 2] = [Self::Low, Self::High];

    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effort| effort.word() == word)
    }

    pub const fn word(self) -> &'static str {
        Self::WORDS[self as usize]
    }

    /// Finds the effort in `taken` that is nearest to this one. If two are equally near, the lower is chosen, because
    /// it costs less; but reasoning is never reduced to `none`. Returns `None`, which leaves the effort to the model,
    /// if the list is empty. Also returns `None` if this effort is `medium` and two others are equally near, because
    /// most models default to about `medium`.
    pub fn nearest(self, taken: &[Self]) -> Option<Self> {
        let distance = |other: Self| (other as usize).abs_diff(self as usize);
        let ends_reasoning = |other: Self| other == Self::None && self != Self::None;
        let key = |other: &Self| (distance(*other), ends_reasoning(*other), *other as usize);
        let nearest = taken.iter().copied().min_by_key(key)?;
        let is_halfway = taken.iter().filter(|other| distance(**other) == distance(nearest)).count() > 1;
        (self != Self::Medium || !is_halfway).then_some(nearest)
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
    fn the_nearest_amount_is_taken_and_halfway_the_lesser_but_never_none_for_some() {
        let nearest = |taken: &[Effort]| Effort::ALL.map(|effort| effort.nearest(taken));
        let (low, high) = (Some(Effort::Low), Some(Effort::High));
        assert_eq!(nearest(&Effort::USUAL), [low, low, low, None, high, high, high]);
        assert_eq!(nearest(&Effort::ALL), Effort::ALL.map(Some));
        assert_eq!(nearest(&[Effort::Medium]), [Some(Effort::Medium); 7]);
        assert_eq!(nearest(&[]), [None; 7]);
        assert_eq!(Effort::Minimal.nearest(&[Effort::None, Effort::Low]), low);
        assert_eq!(Effort::Low.nearest(&[Effort::Medium, Effort::Minimal]), Some(Effort::Minimal));
        assert_eq!(Effort::High.nearest(&[Effort::Medium, Effort::Xhigh]), Some(Effort::Medium));
        assert_eq!(Effort::None.nearest(&[Effort::Minimal]), Some(Effort::Minimal));
    }
}
