//! A model in one GGUF file, as llama.cpp keeps it.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Model, Parts};
use crate::{
    shape::{Shape, check_architecture, plain_speeds},
    weights::{
        LoadError, Source,
        gguf::{Gguf, Metadata},
    },
};

/// How text is cut into words before it becomes tokens, by the name that files give it.
const CUTS: [(&[&str], &str); 3] = [
    (
        &["llama-bpe", "llama-v3", "llama3"],
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        &["qwen2", "deepseek-r1-qwen"],
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (&["gpt-2", "default"], r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
];

/// What a token is for, as files number it.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;

pub(super) fn open(path: &Path, name: &str) -> Result<Model, LoadError> {
    let file = Gguf::open(path)?;
    let metadata = file.metadata();
    let tokenizer = tokenizer(metadata)?.to_string();
    let template = metadata.text("tokenizer.chat_template").ok_or_else(|| {
        LoadError::Unsupported(
            "no chat template; supported: models that were trained to answer in turns".to_owned(),
        )
    })?;
    let tokens = metadata.texts("tokenizer.ggml.tokens").unwrap_or_default();
    let end = metadata.number("tokenizer.ggml.eos_token_id").and_then(|id| u32::try_from(id).ok());
    let mark = |key: &str| {
        let id = metadata.number(key).and_then(|id| usize::try_from(id).ok());
        id.and_then(|id| tokens.get(id)).cloned().unwrap_or_default()
    };
    let parts = Parts {
        shape: shape(&file)?,
        source: &file,
        tokenizer: tokenizer.as_bytes(),
        ends: end.into_iter().collect(),
        template,
        marks: (mark("tokenizer.ggml.bos_token_id"), mark("tokenizer.ggml.eos_token_id")),
    };
    Model::assemble(name, parts)
}

fn shape(file: &Gguf) -> Result<Shape, LoadError> {
    let metadata = file.metadata();
    let family = file.architecture();
    check_architecture(family)?;
    let optional = |key: &str| {
        metadata.number(&format!("{family}.{key}")).and_then(|number| usize::try_from(number).ok())
    };
    let size =
        |key: &str| optional(key).ok_or_else(|| LoadError::Broken(format!("{family}.{key} is missing")));
    let real = |key: &str| metadata.real(&format!("{family}.{key}"));
    if let Some(scaling) =
        metadata.text(&format!("{family}.rope.scaling.type")).filter(|kind| *kind != "none")
    {
        return Err(LoadError::Unsupported(format!("the rope scaling {scaling}; supported: none, llama3")));
    }
    let (width, heads) = (size("embedding_length")?, size("attention.head_count")?);
    let head_width = optional("attention.key_length").unwrap_or(width / heads.max(1));
    let mut speeds = plain_speeds(real("rope.freq_base").unwrap_or(10_000.0), head_width);
    // Llama 3.1 and later: how the context was stretched, worked out when the file was made.
    if let Some(factors) = file.tensor("rope_freqs.weight")? {
        let factors = factors.rows(0, 1);
        speeds.iter_mut().zip(factors).for_each(|(speed, factor)| *speed /= factor);
    }
    let rows = file.tensor("model.embed_tokens.weight")?.map_or(0, |tensor| tensor.shape[0]);
    let shape = Shape {
        rows,
        width,
        inner: size("feed_forward_length")?,
        layers: size("block_count")?,
        heads,
        groups: optional("attention.head_count_kv").unwrap_or(heads),
        head_width,
        context: size("context_length")?,
        epsilon: real("attention.layer_norm_rms_epsilon").ok_or_else(|| {
            LoadError::Broken(format!("{family}.attention.layer_norm_rms_epsilon is missing"))
        })?,
        speeds,
        tied: !file.names().iter().any(|name| name == "lm_head.weight"),
        normed_heads: family == "qwen3",
    };
    shape.checked()
}

/// The vocabulary in the form of a `tokenizer.json`.
fn tokenizer(metadata: &Metadata) -> Result<Value, LoadError> {
    let kind = metadata.text("tokenizer.ggml.model").unwrap_or_default();
    if kind != "gpt2" {
        return Err(LoadError::Unsupported(format!("a tokenizer of the kind {kind}; supported: gpt2")));
    }
    let name = metadata.text("tokenizer.ggml.pre").unwrap_or("default");
    let (_, cut) = CUTS.iter().find(|(names, _)| names.contains(&name)).ok_or_else(|| {
        let known: Vec<&str> = CUTS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        LoadError::Unsupported(format!(
            "a tokenizer that cuts words like {name}; supported: {}",
            known.join(", ")
        ))
    })?;
    let list = |key: &str| {
        metadata.texts(key).ok_or_else(|| LoadError::Tokenizer(format!("the list {key} is missing")))
    };
    let (tokens, merges) = (list("tokenizer.ggml.tokens")?, list("tokenizer.ggml.merges")?);
    let uses = metadata.numbers("tokenizer.ggml.token_type").unwrap_or_default();
    let vocabulary: Map<String, Value> =
        tokens.iter().cloned().zip((0..tokens.len()).map(Value::from)).collect();
    let added = |(id, token): (usize, &String)| {
        let special = match uses.get(id).copied() {
            Some(CONTROL) => true,
            Some(USER_DEFINED) => false,
            Some(_) | None => return None,
        };
        Some(json!({
            "id": id, "content": token, "special": special,
            "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        }))
    };
    let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": regex});
    let words = json!({"type": "Split", "pattern": {"Regex": cut}, "behavior": "Isolated", "invert": false});
    Ok(json!({
        "version": "1.0",
        "added_tokens": tokens.iter().enumerate().filter_map(added).collect::<Vec<_>>(),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [words, bytes(false)]},
        "decoder": bytes(true),
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges, "ignore_merges": name.starts_with("llama")},
    }))
}
