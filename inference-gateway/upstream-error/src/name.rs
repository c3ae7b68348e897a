//! Removes the upstream's own name for a model from a text, since clients must not see this name.

/// Replaces the name.
const SHOWN: &str = "the model";

/// Replaces a model's name, except within other words.
pub(crate) fn without_name(text: &str, name: &str) -> String {
    if name.is_empty() {
        return text.to_owned();
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let goes_on = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let before_name = before.chars().next_back().or_else(|| shown.chars().next_back());
        let is_within = goes_on(before_name) || goes_on(after.chars().next());
        shown.push_str(before);
        shown.push_str(if is_within { name } else { SHOWN });
        rest = after;
    }
    shown + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_replaced_as_a_word_and_not_within_others() {
        for (text, name, shown) in [
            ("The model `o1` does not exist", "o1", "The model `the model` does not exist"),
            ("o1-mini is not o1", "o1", "the model-mini is not the model"),
            ("the maximum of m is 4", "m", "the maximum of the model is 4"),
            ("foo1 o1o1 o1", "o1", "foo1 o1o1 the model"),
            ("unchanged", "", "unchanged"),
        ] {
            assert_eq!(without_name(text, name), shown);
        }
    }
}
