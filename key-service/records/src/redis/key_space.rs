//! Names in Redis. All names of a space share a hash tag, so they are in one slot of a cluster.

use crate::records::{Index, Log, Place, Set, Space};

/// Number of parts of the marks. Each is in its own slot, so that every master of a cluster very probably has some.
pub(super) const PARTS: usize = 16;

/// Makes the names, all with the prefix of the installation.
#[derive(Clone, Debug)]
pub(super) struct KeySpace {
    prefix: String,
}

impl KeySpace {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Returns the name of a place. A set is a hash of records; an index is a sorted set of entries with equal scores;
    /// a log is a stream whose items each hold several values and are numbered by the last of them.
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

    /// Parses the name of a place; `None` for other names.
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

    /// Returns a pattern that matches the names of all places, and some others.
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

    /// Returns the name of an empty string, which is written only to wait until earlier writes to the space are
    /// durable.
    pub(super) fn barrier(&self, space: &Space) -> String {
        format!("{}:{{{}}}:barrier", self.prefix, space.as_str())
    }

    /// Returns the name of the hash with the count at which each data directory last saw this part of the store.
    pub(super) fn marks(&self, part: usize) -> String {
        format!("{}:{{holders-{part}}}:marks", self.prefix)
    }

    /// Returns the name that serving processes give their connections.
    pub(super) fn connection(&self) -> String {
        format!("faregate:{}", self.prefix)
    }

    /// Returns the name of the string with the layout's number.
    pub(super) fn schema(&self) -> String {
        format!("{}:schema", self.prefix)
    }

    /// Returns the name of a hash that only the first layout has, which did not write a layout number.
    pub(super) fn first_layout(&self) -> String {
        format!("{}:{{accounts}}:names", self.prefix)
    }
}
