//! Names in Redis. All names of a space share a hash tag, and so a slot of a cluster.

use crate::records::{Index, Log, Place, Set, Space};

/// Parts of the marks, each with a slot of its own: every master of a cluster is likely to have some.
pub(super) const PARTS: usize = 16;

/// Makes the names, which begin with the installation's prefix.
#[derive(Clone, Debug)]
pub(super) struct KeySpace {
    prefix: String,
}

impl KeySpace {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The name of a place: for a set, a hash of records; for an index, a sorted set of entries, all of the same score; for a log, a
    /// stream, an item of which has the number of its last value.
    pub(super) fn place(&self, space: &Space, place: Place) -> Vec<u8> {
        let (prefix, space) = (&self.prefix, space.as_str());
        match place {
            Place::Set(Set { table, part: 0 }) => format!("{prefix}:{{{space}}}:r{table}"),
            Place::Set(Set { table, part }) => format!("{prefix}:{{{space}}}:r{table}:{part}"),
            Place::Index(Index(number)) => format!("{prefix}:{{{space}}}:i{number}"),
            Place::Log(Log(number)) => format!("{prefix}:{{{space}}}:l{number}"),
        }
        .into_bytes()
    }

    /// Space and place of a name; `None` for a name that is no place's.
    pub(super) fn read(&self, name: &[u8]) -> Option<(Space, Place)> {
        let name = std::str::from_utf8(name).ok()?.strip_prefix(&self.prefix)?.strip_prefix(":{")?;
        let (space, rest) = name.split_once("}:")?;
        let (kind, rest) = rest.split_at_checked(1)?;
        let (number, part) = rest.split_once(':').unwrap_or((rest, "0"));
        let number = number.parse().ok()?;
        let place = match kind {
            "r" => Place::Set(Set { table: number, part: part.parse().ok()? }),
            "i" => Place::Index(Index(number)),
            "l" => Place::Log(Log(number)),
            _ => return None,
        };
        Some((Space::new(space), place))
    }

    /// Pattern that the names of all places match, and some others.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::new();
        for letter in self.prefix.chars() {
            if "*?[]\\".contains(letter) {
                pattern.push('\\');
            }
            pattern.push(letter);
        }
        pattern + ":{*}:*"
    }

    /// String: an empty value, written only for the wait until earlier writes to the space are durable.
    pub(super) fn barrier(&self, space: &Space) -> String {
        format!("{}:{{{}}}:barrier", self.prefix, space.as_str())
    }

    /// String: an empty value, written only to learn whether replicas answer.
    pub(super) fn readiness(&self) -> String {
        format!("{}:readiness", self.prefix)
    }

    /// Hash: the count at which each data directory last saw this part of the store.
    pub(super) fn marks(&self, part: usize) -> String {
        format!("{}:{{holders-{part}}}:marks", self.prefix)
    }

    /// String: the number of the layout.
    pub(super) fn schema(&self) -> String {
        format!("{}:schema", self.prefix)
    }

    /// Hash that the first layout had, which wrote no number.
    pub(super) fn first_layout(&self) -> String {
        format!("{}:{{accounts}}:names", self.prefix)
    }
}
