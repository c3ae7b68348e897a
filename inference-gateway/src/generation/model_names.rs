//! Compares model names. Vendors may shorten or extend the requested name in their answers.

/// Returns whether two names mean the same model. A vendor may answer with a dated version of a name, or leave out the
/// part before the last `/`.
pub(super) fn is_same_model(asked: &str, answered: &str) -> bool {
    // A suffix such as `:nitro` selects how a model is served, and answers leave it out. But in `llama3:8b`, the suffix
    // belongs to the model's name.
    let (asked, answered) = match (asked.split_once(':'), answered.split_once(':')) {
        (Some((asked, _)), None) => (asked, answered),
        (None, Some((answered, _))) => (asked, answered),
        (Some(_), Some(_)) | (None, None) => (asked, answered),
    };
    undated(asked).eq_ignore_ascii_case(undated(answered))
}

/// Returns the last part of a name, without a date or `latest` at its end.
fn undated(name: &str) -> &str {
    let mut name = name.rsplit('/').next().unwrap_or_default();
    while let Some((rest, end)) = name.rsplit_once(['-', '@']) {
        let is_digits = !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
        // Dates have the form `20260201`, `0201` or `2026-02-01`, of which the last has three parts. Numbers such as
        // `4` and `70` belong to the name.
        let is_date = is_digits && (end.len() >= 4 || is_day(rest, end));
        if !is_date && !end.eq_ignore_ascii_case("latest") {
            break;
        }
        name = rest;
    }
    name
}

/// Returns whether two digits are the day of a date in three parts.
fn is_day(before: &str, day: &str) -> bool {
    let is_number = |part: Option<&str>, digits: usize| {
        part.is_some_and(|part| part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut parts = before.rsplit('-');
    let (first, second) = (parts.next(), parts.next());
    day.len() == 2 && (is_number(first, 4) || (is_number(first, 2) && is_number(second, 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_known_by_its_name_with_or_without_a_date() {
        for (asked, answered) in [
            ("gpt-x", "gpt-x-2026-02-01"),
            ("gpt-x", "GPT-X"),
            ("claude-x-latest", "claude-x-20260201"),
            ("claude-x@20260201", "claude-x"),
            ("aviary/lark", "lark"),
            ("Qwen/Qwen3-4B", "Qwen/Qwen3-4B"),
            ("gpt-x-0613", "gpt-x"),
            ("aviary/lark:nitro", "aviary/lark"),
            ("llama:8b", "llama:8b"),
        ] {
            assert!(is_same_model(asked, answered) && is_same_model(answered, asked), "{asked} {answered}");
        }
        for (asked, answered) in [
            ("gpt-x", "gpt-x-mini"),
            ("cheap/small", "dear/pro"),
            ("llama-8", "llama-70"),
            ("llama:8b", "llama:70b"),
            ("gpt-4", "gpt-5"),
            ("m", ""),
        ] {
            assert!(!is_same_model(asked, answered), "{asked} {answered}");
        }
    }
}
