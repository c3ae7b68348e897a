//! A model with all that belongs to it: the one that is shipped, or one from files.

mod folder;
mod gguf;

use std::{path::Path, sync::Arc};

use crate::{
    about,
    decoder::Decoder,
    prompt::Template,
    shape::Shape,
    threads::Threads,
    vocabulary::Vocabulary,
    weights::{LoadError, Source, Weights, safetensors::Safetensors},
};

const CONFIG: &[u8] = include_bytes!("../weights/config.json");
const TENSORS: &[u8] = include_bytes!("../weights/model.safetensors");
const TOKENIZER: &[u8] = include_bytes!("../weights/tokenizer.json");
const CHAT_TEMPLATE: &str = include_str!("../weights/chat_template.jinja");

/// A loaded model.
pub struct Model {
    pub(crate) name: String,
    /// What to expect of it, where we know.
    pub(crate) sentence: Option<&'static str>,
    pub(crate) decoder: Decoder,
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) template: Template,
}

/// What a model is made of, in whatever files it was.
struct Parts<'a> {
    shape: Shape,
    source: &'a dyn Source,
    tokenizer: &'a [u8],
    /// Tokens that end an answer.
    ends: Vec<u32>,
    template: &'a str,
    /// What the template may write at the beginning and the end of a text.
    marks: (String, String),
}

impl Model {
    /// The model that is shipped in the program. It takes some milliseconds.
    pub fn shipped() -> Result<Self, LoadError> {
        let parts = Parts {
            shape: Shape::from_config(CONFIG)?,
            source: &Safetensors::inside(TENSORS)?,
            tokenizer: TOKENIZER,
            ends: Vec::new(),
            template: CHAT_TEMPLATE,
            marks: (String::new(), String::new()),
        };
        Ok(Self { sentence: Some(about().sentence), ..Self::assemble(about().name, parts)? })
    }

    /// A model from a folder in the Hugging Face layout (`config.json`, `tokenizer.json`, safetensors), or from one GGUF
    /// file. It is named like the folder or file.
    pub fn open(path: &Path) -> Result<Self, LoadError> {
        if path.is_dir() {
            // What follows a dot is part of a folder's name: `Qwen3-0.6B`.
            let own = path.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_owned()));
            folder::open(path, &own.unwrap_or_default().to_string_lossy())
        } else {
            gguf::open(path, &path.file_stem().unwrap_or_default().to_string_lossy())
        }
    }

    /// Serves it under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Lets prompt and answer together hold at most so many tokens.
    #[must_use]
    pub fn with_context(mut self, most: usize) -> Self {
        self.decoder.limit_context(most);
        self
    }

    /// Lets it compute on so many threads. The answers stay the same.
    pub fn with_threads(mut self, count: usize) -> Result<Self, LoadError> {
        self.decoder.spread(Threads::new(count).map_err(LoadError::Thread)?);
        Ok(self)
    }

    /// The name under which it is served.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// So many numbers were trained.
    pub fn parameters(&self) -> usize {
        self.decoder.parameters()
    }

    /// Prompt and answer together hold at most so many tokens.
    pub fn context(&self) -> usize {
        self.decoder.context()
    }

    fn assemble(name: &str, parts: Parts<'_>) -> Result<Self, LoadError> {
        let vocabulary = Vocabulary::new(parts.tokenizer, &parts.ends)?;
        let mut weights = Weights::new(parts.source);
        Ok(Self {
            name: name.to_owned(),
            sentence: None,
            decoder: Decoder::load(parts.shape, vocabulary.len(), &mut weights)?,
            vocabulary: Arc::new(vocabulary),
            template: Template::new(parts.template.to_owned(), parts.marks)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::PathBuf};

    use serde::Deserialize;

    use super::*;
    use crate::decoder::Past;

    /// Our sums are taken in another order than PyTorch's, and its numbers are written down with three digits.
    const MARGIN: f32 = 0.002;

    /// What `transformers` makes of a prompt.
    #[derive(Deserialize)]
    struct Recorded {
        prompt: String,
        prompt_tokens: Vec<u32>,
        answer_tokens: Vec<u32>,
        /// Of all tokens, when the last one was written.
        scores: Vec<f32>,
    }

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference").join(name)
    }

    #[test]
    fn the_description_is_true_of_what_is_shipped() {
        let model = Model::shipped().unwrap();
        assert_eq!(model.parameters(), about().parameters);
        assert_eq!(model.context(), about().context_tokens);
    }

    #[test]
    fn each_architecture_answers_as_transformers_does() {
        let recorded: BTreeMap<String, Vec<Recorded>> =
            serde_json::from_str(include_str!("../tests/reference/expected.json")).unwrap();
        assert_eq!(recorded.keys().collect::<Vec<_>>(), ["llama", "llama.gguf", "qwen2", "qwen3"]);
        for (name, cases) in recorded {
            let model = Model::open(&fixture(&name)).unwrap();
            for case in cases {
                let text = format!("<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n", case.prompt);
                assert_eq!(model.vocabulary.encode(&text).unwrap(), case.prompt_tokens, "{name}");
                let mut past = Past::default();
                let mut before = Vec::new();
                let mut scores = model.decoder.read(&case.prompt_tokens, &mut past);
                for token in case.answer_tokens {
                    assert!(
                        scores.iter().all(|&score| score <= scores[token as usize]),
                        "{name}: {}",
                        case.prompt
                    );
                    before = scores;
                    scores = model.decoder.read(&[token], &mut past);
                }
                let furthest = before.iter().zip(&case.scores).map(|(ours, theirs)| (ours - theirs).abs());
                assert!(furthest.clone().all(|off| off <= MARGIN), "{name}: {:?}", furthest.reduce(f32::max));
            }
        }
    }

    #[test]
    fn what_a_network_should_not_have_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(fixture("qwen3")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
        }
        let config = folder.path().join("config.json");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text.replace("\"qwen3\"", "\"qwen2\"")).unwrap();
        let refusal = Model::open(folder.path()).err().unwrap().to_string();
        assert!(refusal.contains("self_attn.") && refusal.contains("_norm.weight; supported:"), "{refusal}");
    }
}
