//! Weights and metadata in a GGUF file, of its versions 2 and 3.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufReader, Read, Seek},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use super::{Kind, LoadError, Source, Tensor, size};

/// What a file begins with.
const MAGIC: [u8; 4] = *b"GGUF";
/// Where nothing else is said, tensors begin at a multiple of so many bytes.
const ALIGNMENT: u64 = 32;
/// The format's number for lists.
const ARRAY: u32 = 9;
/// A tensor has at most so many dimensions.
const MAX_DIMENSIONS: u32 = 4;

/// An open file.
pub(crate) struct Gguf {
    path: PathBuf,
    file: File,
    metadata: Metadata,
    /// By their names in the Hugging Face layout.
    tensors: HashMap<String, Place>,
    /// Where tensors begin.
    begin: u64,
    length: u64,
}

/// What a file says of itself, by key.
#[derive(Default)]
pub(crate) struct Metadata(HashMap<String, Value>);

enum Value {
    Number(u64),
    Real(f32),
    Text(String),
    Numbers(Vec<u64>),
    Texts(Vec<String>),
    /// Of a type that nothing here needs.
    Other,
}

struct Place {
    kind: Result<Kind, u32>,
    shape: Vec<usize>,
    offset: u64,
}

impl Gguf {
    pub(crate) fn open(path: &Path) -> Result<Self, LoadError> {
        let failed = |source| LoadError::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let source = BufReader::new(file.try_clone().map_err(failed)?);
        let mut reader = Reader { source, path, length };
        if reader.bytes::<4>()? != MAGIC {
            return Err(LoadError::Unsupported(format!(
                "a file that is not GGUF ({}); supported: a GGUF file, or a folder with config.json",
                path.display()
            )));
        }
        let version = reader.u32()?;
        if !(2..=3).contains(&version) {
            return Err(LoadError::Unsupported(format!("GGUF of version {version}; supported: 2, 3")));
        }
        let (tensors, entries) = (reader.count()?, reader.count()?);
        let mut metadata = Metadata::default();
        for _ in 0..entries {
            let key = reader.text()?;
            let kind = reader.u32()?;
            metadata.0.insert(key, reader.value(kind)?);
        }
        let places: Vec<(String, Place)> = (0..tensors).map(|_| reader.place()).collect::<Result<_, _>>()?;
        let alignment = metadata.number("general.alignment").unwrap_or(ALIGNMENT).max(1);
        let begin = reader.source.stream_position().map_err(failed)?.next_multiple_of(alignment);
        let tensors = places.into_iter().map(|(name, place)| (hub_name(&name), place)).collect();
        Ok(Self { path: path.to_owned(), file, metadata, tensors, begin, length })
    }

    pub(crate) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The family of models, as the file names it.
    pub(crate) fn architecture(&self) -> &str {
        self.metadata.text("general.architecture").unwrap_or_default()
    }

    /// llama.cpp keeps the two halves of a Llama's heads interleaved. This puts them back.
    fn in_halves(&self, name: &str, tensor: Tensor) -> Tensor {
        let heads = match name {
            _ if self.architecture() != "llama" => return tensor,
            _ if name.contains("self_attn.q_proj") => "llama.attention.head_count",
            _ if name.contains("self_attn.k_proj") => "llama.attention.head_count_kv",
            _ => return tensor,
        };
        let heads = self.metadata.number(heads).or(self.metadata.number("llama.attention.head_count"));
        let heads = heads.and_then(|heads| usize::try_from(heads).ok()).unwrap_or(1).max(1);
        let rows = tensor.shape[0];
        if rows == 0 || !rows.is_multiple_of(2 * heads) {
            return tensor;
        }
        let (row_bytes, half) = (tensor.bytes.len() / rows, rows / heads / 2);
        let mut bytes = Vec::with_capacity(tensor.bytes.len());
        for row in 0..rows {
            let (head, place) = (row / (2 * half), row % (2 * half));
            let stored = head * 2 * half + place % half * 2 + place / half;
            bytes.extend_from_slice(&tensor.bytes[stored * row_bytes..][..row_bytes]);
        }
        Tensor { bytes: bytes.into(), ..tensor }
    }
}

impl Source for Gguf {
    fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let Some(place) = self.tensors.get(name) else { return Ok(None) };
        let kind = place.kind.map_err(|number| {
            let supported = "F32, F16, BF16, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K";
            LoadError::Unsupported(format!(
                "weights of ggml's type {number} ({name}); supported: {supported}"
            ))
        })?;
        let size = size(kind, &place.shape).ok_or_else(|| LoadError::misshapen(name))?;
        let begin = self.begin.saturating_add(place.offset);
        if begin.checked_add(size as u64).is_none_or(|end| end > self.length) {
            return Err(LoadError::Broken(format!("{} ends too early", self.path.display())));
        }
        let mut bytes = vec![0; size];
        self.file
            .read_exact_at(&mut bytes, begin)
            .map_err(|source| LoadError::File { path: self.path.clone(), source })?;
        let tensor = Tensor::new(name, kind, place.shape.clone(), bytes.into())?;
        Ok(Some(self.in_halves(name, tensor)))
    }

    fn names(&self) -> Vec<String> {
        self.tensors.keys().filter(|name| *name != "rope_freqs.weight").cloned().collect()
    }

    fn numbers(&self) -> usize {
        let count = |place: &Place| {
            place.shape.iter().fold(1, |product: usize, &length| product.saturating_mul(length))
        };
        self.tensors.values().map(count).fold(0, usize::saturating_add)
    }
}

impl Metadata {
    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        match self.0.get(key)? {
            Value::Number(number) => Some(*number),
            Value::Real(_) | Value::Text(_) | Value::Numbers(_) | Value::Texts(_) | Value::Other => None,
        }
    }

    pub(crate) fn real(&self, key: &str) -> Option<f32> {
        match self.0.get(key)? {
            Value::Real(real) => Some(*real),
            Value::Number(_) | Value::Text(_) | Value::Numbers(_) | Value::Texts(_) | Value::Other => None,
        }
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.0.get(key)? {
            Value::Text(text) => Some(text),
            Value::Number(_) | Value::Real(_) | Value::Numbers(_) | Value::Texts(_) | Value::Other => None,
        }
    }

    pub(crate) fn numbers(&self, key: &str) -> Option<&[u64]> {
        match self.0.get(key)? {
            Value::Numbers(numbers) => Some(numbers),
            Value::Number(_) | Value::Real(_) | Value::Text(_) | Value::Texts(_) | Value::Other => None,
        }
    }

    pub(crate) fn texts(&self, key: &str) -> Option<&[String]> {
        match self.0.get(key)? {
            Value::Texts(texts) => Some(texts),
            Value::Number(_) | Value::Real(_) | Value::Text(_) | Value::Numbers(_) | Value::Other => None,
        }
    }
}

/// Reads a file's head from its beginning on.
struct Reader<'a> {
    source: BufReader<File>,
    path: &'a Path,
    /// Of the file: nothing in it can be longer.
    length: u64,
}

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], LoadError> {
        let mut bytes = [0; N];
        self.source
            .read_exact(&mut bytes)
            .map_err(|source| LoadError::File { path: self.path.to_owned(), source })?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, LoadError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Result<u64, LoadError> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }

    /// How many of something follow, each of at least a byte.
    fn count(&mut self) -> Result<usize, LoadError> {
        let count = self.u64()?;
        let fits = usize::try_from(count).ok().filter(|_| count <= self.length);
        fits.ok_or_else(|| {
            LoadError::Broken(format!("{} claims to be longer than it is", self.path.display()))
        })
    }

    fn text(&mut self) -> Result<String, LoadError> {
        let mut bytes = vec![0; self.count()?];
        self.source
            .read_exact(&mut bytes)
            .map_err(|source| LoadError::File { path: self.path.to_owned(), source })?;
        // A token may be a part of a character.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A value of one of the format's numbered types.
    fn value(&mut self, kind: u32) -> Result<Value, LoadError> {
        Ok(match kind {
            0 | 1 | 7 => Value::Number(u64::from(u8::from_le_bytes(self.bytes()?))),
            2 | 3 => Value::Number(u64::from(u16::from_le_bytes(self.bytes()?))),
            4 | 5 => Value::Number(u64::from(self.u32()?)),
            6 => Value::Real(f32::from_le_bytes(self.bytes()?)),
            8 => Value::Text(self.text()?),
            ARRAY => self.array()?,
            10 | 11 => Value::Number(self.u64()?),
            12 => {
                self.u64()?;
                Value::Other
            }
            other => return Err(LoadError::Broken(format!("there is no value of the type {other} in GGUF"))),
        })
    }

    fn array(&mut self) -> Result<Value, LoadError> {
        let kind = self.u32()?;
        if kind == ARRAY {
            // Nobody needs them, and they could be nested without end.
            return Err(LoadError::Broken(format!("{} has lists of lists", self.path.display())));
        }
        let (mut numbers, mut texts) = (Vec::new(), Vec::new());
        for _ in 0..self.count()? {
            match self.value(kind)? {
                Value::Number(number) => numbers.push(number),
                Value::Text(text) => texts.push(text),
                Value::Real(_) | Value::Numbers(_) | Value::Texts(_) | Value::Other => {}
            }
        }
        Ok(if numbers.is_empty() { Value::Texts(texts) } else { Value::Numbers(numbers) })
    }

    fn place(&mut self) -> Result<(String, Place), LoadError> {
        let name = self.text()?;
        let dimensions = self.u32()?;
        if dimensions > MAX_DIMENSIONS {
            return Err(LoadError::Broken(format!("the tensor {name} has {dimensions} dimensions")));
        }
        let mut shape: Vec<usize> = (0..dimensions).map(|_| self.count()).collect::<Result<_, _>>()?;
        // Here the first one varies fastest.
        shape.reverse();
        let kind = kind(self.u32()?);
        Ok((name, Place { kind, shape, offset: self.u64()? }))
    }
}

/// The type of numbers, by ggml's number for it, or that number.
fn kind(number: u32) -> Result<Kind, u32> {
    match number {
        0 => Ok(Kind::F32),
        1 => Ok(Kind::F16),
        2 => Ok(Kind::Q4_0),
        8 => Ok(Kind::Q8_0),
        12 => Ok(Kind::Q4K),
        13 => Ok(Kind::Q5K),
        14 => Ok(Kind::Q6K),
        30 => Ok(Kind::Bf16),
        other => Err(other),
    }
}

/// A tensor's name in the Hugging Face layout. One that has none there keeps its own.
fn hub_name(name: &str) -> String {
    let whole = [("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];
    let parts = [
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ];
    let Some((stem, kind)) = name.rsplit_once('.') else { return name.to_owned() };
    let translated = |names: &[(&str, &'static str)], stem: &str| {
        names.iter().find(|(own, _)| *own == stem).map(|(_, hub)| *hub)
    };
    if let Some((layer, part)) = stem.strip_prefix("blk.").and_then(|rest| rest.split_once('.'))
        && let Some(part) = translated(&parts, part)
    {
        return format!("model.layers.{layer}.{part}.{kind}");
    }
    translated(&whole, stem).map_or_else(|| name.to_owned(), |stem| format!("{stem}.{kind}"))
}
