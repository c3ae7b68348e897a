//! Finds the model that a person chooses from a server's list.

use std::fmt::Write;

use shared::text::{is_control, shown};

/// Number of models that a screen shows at once.
const SHOWN_AT_ONCE: usize = 30;
/// Number of models that an error lists; a server may have hundreds.
const SHOWN_IN_ERROR: usize = 12;
/// Maximum length of a shown name in characters.
const MAX_SHOWN_NAME: usize = 100;

/// Names of models, in the order of the server's list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelNames(Vec<String>);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    Model(String),
    /// The names of several models contain the answer.
    Among(ModelNames),
    Nothing,
}

impl ModelNames {
    /// Takes the names from a list, except names that a catalogue cannot contain.
    pub(super) fn of<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let usable = names.filter(|name| !name.is_empty() && !name.chars().any(is_control));
        Self(usable.map(str::to_owned).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Lists the first names as a numbered menu.
    pub(super) fn menu(&self) -> String {
        let mut menu = String::new();
        for (place, name) in self.0.iter().take(SHOWN_AT_ONCE).enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(menu, "{:>4}  {}", place + 1, shown(name, MAX_SHOWN_NAME));
        }
        match self.0.len().saturating_sub(SHOWN_AT_ONCE) {
            0 => menu,
            others => {
                format!("{menu}      and {others} others; enter a part of a name to see the matching names\n")
            }
        }
    }

    /// Interprets an answer to the menu of these names: a number, a name, or a part of any name in `all`.
    pub(super) fn chosen(&self, all: &Self, answer: &str) -> Chosen {
        let number = answer.parse::<usize>().ok().and_then(|number| self.0.get(number.checked_sub(1)?));
        if let Some(model) = all.0.iter().find(|name| *name == answer).or(number) {
            return Chosen::Model(model.clone());
        }
        let among = all.with(answer);
        if among.is_empty() { Chosen::Nothing } else { Chosen::Among(among) }
    }

    /// Finds the names that contain this text, or are contained in it.
    fn with(&self, text: &str) -> Self {
        let text = text.to_lowercase();
        let is_like = |name: &&String| {
            let name = name.to_lowercase();
            name.contains(&text) || text.contains(&name)
        };
        Self(self.0.iter().filter(is_like).cloned().collect())
    }

    /// Makes the error for an unknown model. The error lists the models that exist, similar names first.
    pub(super) fn unknown(&self, name: &str) -> String {
        let alike = self.with(name);
        let others = self.0.iter().filter(|other| !alike.0.contains(other));
        let names: Vec<String> = alike
            .0
            .iter()
            .chain(others)
            .take(SHOWN_IN_ERROR)
            .map(|name| shown(name, MAX_SHOWN_NAME))
            .collect();
        let name = shown(name, MAX_SHOWN_NAME);
        let more = match self.0.len().saturating_sub(SHOWN_IN_ERROR) {
            0 => String::new(),
            more => format!(" and {more} others"),
        };
        format!("the server has no model \"{name}\"; its models are {}{more}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> ModelNames {
        ModelNames::of(list.iter().copied())
    }

    #[test]
    fn a_model_is_chosen_by_its_name_its_number_or_a_part_of_its_name() {
        let all = names(&["lark-2", "lark-2-mini", "wren", "7"]);
        let chosen = |answer: &str| all.chosen(&all, answer);
        assert_eq!(chosen("wren"), Chosen::Model("wren".into()));
        assert_eq!(chosen("2"), Chosen::Model("lark-2-mini".into()));
        assert_eq!(chosen("7"), Chosen::Model("7".into()), "a name before a number");
        assert_eq!(chosen("Mini"), Chosen::Among(names(&["lark-2-mini"])));
        assert_eq!(chosen("lark"), Chosen::Among(names(&["lark-2", "lark-2-mini"])));
        for nothing in ["0", "9", "owl"] {
            assert_eq!(chosen(nothing), Chosen::Nothing, "{nothing}");
        }
        // A number is looked up in the menu that was shown, a name in the whole list.
        let part = names(&["wren"]);
        assert_eq!(part.chosen(&all, "1"), Chosen::Model("wren".into()));
        assert_eq!(part.chosen(&all, "lark-2"), Chosen::Model("lark-2".into()));
    }

    #[test]
    fn long_lists_are_cut_and_odd_names_left_out() {
        let many: Vec<String> = (0..100).map(|number| format!("model-{number}")).collect();
        let many = ModelNames::of(many.iter().map(String::as_str));
        assert_eq!(many.menu().lines().count(), SHOWN_AT_ONCE + 1);
        assert!(many.menu().contains("and 70 others"));
        let said = many.unknown("model-99");
        assert!(
            said.contains("its models are model-9, model-99, model-0") && said.ends_with("and 88 others"),
            "{said}"
        );
        assert_eq!(names(&["a\nb", "", "\u{202e}x", "c"]), names(&["c"]));
        assert_eq!(names(&["c"]).unknown("d"), "the server has no model \"d\"; its models are c");
    }
}
