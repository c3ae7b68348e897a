use std::fmt;

use shared::ids::{GroupId, KeyId};

/// The owner of a budget: a key or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetOwner {
    Key(KeyId),
    Group(GroupId),
}

impl fmt::Display for BudgetOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Group(group) => group.fmt(f),
        }
    }
}
