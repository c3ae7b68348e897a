//! Writes the catalogue, the model's sizes, and the final message on the screen.

use std::path::Path;

use key_service_cli::{CatalogueEntry, ListedModel};
use shared::money::NanoUsd;
use shared_catalog::{Catalog, CatalogError, Preset, Rates, Upstream};

/// Context window to assume if none is known.
const GUESSED_WINDOW: u64 = 32_768;
/// Output limit to assume if none is known. It is enough for a source file, and requests hold little money for it.
const GUESSED_OUTPUT: u64 = 8_192;

const HEAD: &str = r#"# The catalogue of models, written by `faregate init`. docs/catalogue.md explains every field. After a change, run
# `faregate --models FILE catalogue check`, and send SIGHUP to the running server.

[service]                     # description of this installation in GET /v1
name = "Faregate"
provider = "Faregate"
docs = "https://docs.example.com"

"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) context_window: u64,
    pub(super) max_output_tokens: u64,
    /// Whether the window is guessed, because neither the flags, nor the server, nor a price list has it.
    pub(super) window_is_guessed: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToldSizes {
    pub(super) named_window: Option<u64>,
    pub(super) named_output: Option<u64>,
    pub(super) served_window: Option<u64>,
    /// Default window of the server's software.
    pub(super) usual_window: Option<u64>,
    pub(super) listed_window: Option<u64>,
    pub(super) listed_output: Option<u64>,
}

impl Sizes {
    /// Takes the window from the first source that has it: the flag, the server, the software's default, or the price
    /// list. Takes the output limit from the flag or the price list. A size that no source has is guessed. A flag for a
    /// larger window than the server's, or for more output than the window, is an error.
    pub(super) fn of(told: ToldSizes) -> Result<Self, String> {
        let ToldSizes { named_window, named_output, served_window, .. } = told;
        if let (Some(named), Some(served)) = (named_window, served_window)
            && named > served
        {
            return Err(format!(
                "--context-window: the server's window for this model is {served} tokens; use at most that"
            ));
        }
        let known = named_window.or(served_window).or(told.usual_window).or(told.listed_window);
        let context_window = known.unwrap_or(GUESSED_WINDOW);
        if let Some(named) = named_output.filter(|named| *named > context_window) {
            return Err(format!(
                "--max-output-tokens: {named} is more than the context window of {context_window}; use less, or a larger \
                 --context-window"
            ));
        }
        // Prompt and output share the window, so an answer must leave room for the prompt.
        let listed =
            told.listed_output.map(|most| if most < context_window { most } else { context_window / 2 });
        let guessed = GUESSED_OUTPUT.min(context_window / 4);
        let max_output_tokens = named_output.or(listed).unwrap_or(guessed).max(1);
        Ok(Self { context_window, max_output_tokens, window_is_guessed: known.is_none() })
    }
}

pub(super) fn upstream(preset: &Preset) -> Result<Option<Upstream>, CatalogError> {
    let listed = free("any");
    let sizes = Sizes { context_window: 1, max_output_tokens: 1, window_is_guessed: false };
    let catalog = Catalog::parse(&text(preset, listed, "any", sizes), "the upstream")?;
    Ok(catalog.models.into_iter().flat_map(|model| model.upstreams).next())
}

/// Returns a model that is free for callers.
pub(super) fn free(id: &str) -> ListedModel {
    let mut rates = [false; _];
    rates[..3].fill(true);
    ListedModel {
        id: id.to_owned(),
        owner: None,
        context_window: None,
        max_output_tokens: None,
        embeddings: false,
        price: shared_catalog::Price::flat(Rates::of_three(NanoUsd::ZERO, NanoUsd::ZERO, NanoUsd::ZERO)),
        rates,
        left_out: Vec::new(),
    }
}

/// Writes the catalogue for a model that its server calls `name`.
pub(super) fn text(preset: &Preset, listed: ListedModel, name: &str, sizes: Sizes) -> String {
    let listed = ListedModel {
        id: name.to_owned(),
        owner: Some(preset.name.clone()),
        context_window: Some(sizes.context_window),
        max_output_tokens: Some(sizes.max_output_tokens),
        ..listed
    };
    let entry = CatalogueEntry { listed: &listed, preset: Some(preset), upstream_model: name, markup: None };
    format!("{HEAD}{}\n", entry.text().trim_end())
}

/// Reports what was written, and the command that serves it.
pub(super) fn farewell(preset: &Preset, name: &str, sizes: Sizes, file: &Path) -> String {
    let Sizes { context_window, max_output_tokens, window_is_guessed } = sizes;
    let file = shell_word(&file.display().to_string());
    let guessed = "context_window is a guess, since neither the server nor a price list states it. Set it in the \
                   file, or with --context-window.";
    let variable = preset.api_key_env.as_ref();
    let lines = [
        Some(format!("wrote {file}: \"{name}\" at {}", preset.url)),
        Some(format!("context_window {context_window}, max_output_tokens {max_output_tokens}")),
        window_is_guessed.then(|| guessed.to_owned()),
        preset.hint.as_ref().map(|hint| format!("{}: {hint}.", preset.title)),
        variable.map(|variable| format!("The credential is read from {variable} at every start.")),
        Some(format!("\nServe it with\n\n  faregate --models {file}\n")),
    ];
    lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// Quotes a word so that a shell reads it as one.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> Preset {
        Preset::all().unwrap().into_iter().find(|preset| preset.name == name).unwrap()
    }

    #[test]
    fn a_window_is_the_operators_or_the_servers_or_the_lists_or_a_guess_that_is_said() {
        let sizes = |told: ToldSizes| {
            Sizes::of(told)
                .map(|sizes| (sizes.context_window, sizes.max_output_tokens, sizes.window_is_guessed))
        };
        let none = ToldSizes::default();
        assert_eq!(sizes(none), Ok((32_768, 8_192, true)));
        let listed = ToldSizes { listed_window: Some(200_000), listed_output: Some(64_000), ..none };
        assert_eq!(sizes(listed), Ok((200_000, 64_000, false)));
        let served = ToldSizes { served_window: Some(8_192), ..listed };
        assert_eq!(sizes(served), Ok((8_192, 4_096, false)), "an answer leaves room for its prompt");
        assert_eq!(sizes(ToldSizes { usual_window: Some(4_096), ..listed }), Ok((4_096, 2_048, false)));
        let named = ToldSizes { named_window: Some(1_000), named_output: Some(10), ..served };
        assert_eq!(sizes(named), Ok((1_000, 10, false)));
        assert_eq!(sizes(ToldSizes { named_window: Some(1), ..none }), Ok((1, 1, false)));
        let more = sizes(ToldSizes { named_window: Some(8_193), ..served }).unwrap_err();
        assert!(more.contains("--context-window") && more.contains("8192"), "{more}");
        let more = sizes(ToldSizes { named_output: Some(32_769), ..none }).unwrap_err();
        assert!(more.contains("--max-output-tokens"), "{more}");
    }

    #[test]
    fn every_preset_is_written_as_a_catalogue_that_says_what_it_is() {
        for preset in Preset::all().unwrap() {
            let mut rates = [None; _];
            (rates[0], rates[2]) = (Some(NanoUsd::from_usd(3)), Some(NanoUsd::from_usd(15)));
            let listed = ListedModel::at_rates("x", rates).unwrap();
            let name = r#"a/"odd" \name"#;
            let sizes = Sizes::of(ToldSizes::default()).unwrap();
            let text = text(&preset, listed, name, sizes);
            let model = Catalog::parse(&text, &preset.name)
                .unwrap_or_else(|e| panic!("{e}\n{text}"))
                .models
                .remove(0);
            assert_eq!((model.id.as_str(), model.upstreams[0].model.as_str()), (name, name));
            assert_eq!(model.price.base.cached_input, NanoUsd::from_usd(3));
            assert!(text.starts_with("# The catalogue of models"), "{text}");
            let upstream = upstream(&preset).unwrap().unwrap();
            assert_eq!(upstream.url, model.upstreams[0].url);
            assert_eq!(upstream.speaks, model.upstreams[0].speaks);
        }
    }

    #[test]
    fn the_last_words_say_how_to_serve_what_was_written() {
        let sizes = Sizes::of(ToldSizes::default()).unwrap();
        let said = farewell(&preset("openai"), "m", sizes, Path::new("my models.toml"));
        assert!(said.ends_with("  faregate --models 'my models.toml'\n"), "{said}");
        assert!(said.contains("OPENAI_API_KEY") && said.contains("is a guess"), "{said}");
        let sizes = Sizes { window_is_guessed: false, ..sizes };
        let said = farewell(&preset("vllm"), "m", sizes, Path::new("models.toml"));
        assert!(said.contains("--enable-prompt-tokens-details") && !said.contains("guess"), "{said}");
        assert!(said.ends_with("  faregate --models models.toml\n"), "{said}");
    }
}
