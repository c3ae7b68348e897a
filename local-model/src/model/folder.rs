//! A model in the layout of the Hugging Face hub.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Model, Parts};
use crate::{
    shape::Shape,
    weights::{LoadError, safetensors::Safetensors},
};

/// `tokenizer_config.json`, as far as it matters.
#[derive(Default, Deserialize)]
#[serde(default)]
struct TokenizerConfig {
    chat_template: Option<Templates>,
    bos_token: Value,
    eos_token: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Several(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// `config.json` and `generation_config.json`, as far as they say how answers end.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Ends {
    eos_token_id: Value,
}

pub(super) fn open(folder: &Path, name: &str) -> Result<Model, LoadError> {
    let config = read(&folder.join("config.json"))?;
    let shape = Shape::from_config(&config)?;
    let tokenizer_config: TokenizerConfig = optional_json(&folder.join("tokenizer_config.json"))?;
    let template = template(folder, tokenizer_config.chat_template)?;
    let of_model: Ends = optional_json(&folder.join("config.json"))?;
    let of_generation: Ends = optional_json(&folder.join("generation_config.json"))?;
    let parts = Parts {
        shape,
        source: &Safetensors::open(folder)?,
        tokenizer: &read(&folder.join("tokenizer.json"))?,
        ends: [of_model, of_generation].iter().flat_map(|ends| ids(&ends.eos_token_id)).collect(),
        template: &template,
        marks: (content(&tokenizer_config.bos_token), content(&tokenizer_config.eos_token)),
    };
    Model::assemble(name, parts)
}

/// A file of its own goes before the tokenizer's configuration, and the template for chats before those for other uses.
fn template(folder: &Path, configured: Option<Templates>) -> Result<String, LoadError> {
    if let Some(own) = optional(&folder.join("chat_template.jinja"))? {
        return String::from_utf8(own)
            .map_err(|error| LoadError::Broken(format!("chat_template.jinja: {error}")));
    }
    let named = |templates: Vec<NamedTemplate>| {
        templates.into_iter().find(|named| named.name == "default").map(|named| named.template)
    };
    let found = configured.and_then(|templates| match templates {
        Templates::One(template) => Some(template),
        Templates::Several(templates) => named(templates),
    });
    found.ok_or_else(|| {
        LoadError::Unsupported(
            "no chat template; supported: models that were trained to answer in turns".to_owned(),
        )
    })
}

/// One id, or a list of them.
fn ids(given: &Value) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match given.as_array() {
        Some(several) => several.iter().filter_map(id).collect(),
        None => id(given).into_iter().collect(),
    }
}

/// A token is written as text, or as an object that holds it.
fn content(token: &Value) -> String {
    token.as_str().or(token["content"].as_str()).unwrap_or_default().to_owned()
}

fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    fs::read(path).map_err(|source| LoadError::File { path: PathBuf::from(path), source })
}

fn optional(path: &Path) -> Result<Option<Vec<u8>>, LoadError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LoadError::File { path: PathBuf::from(path), source }),
    }
}

fn optional_json<T: Default + DeserializeOwned>(path: &Path) -> Result<T, LoadError> {
    let Some(bytes) = optional(path)? else { return Ok(T::default()) };
    serde_json::from_slice(&bytes).map_err(|error| LoadError::Broken(format!("{}: {error}", path.display())))
}
