//! Weights in the safetensors format: one file, or several with an index.

use std::{
    borrow::Cow,
    collections::HashMap,
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::Metadata};
use serde::Deserialize;

use super::{Kind, LoadError, Source, Tensor};

/// The head of a file names its tensors; even a model of hundreds of layers needs less.
const MAX_HEAD_BYTES: u64 = 32 << 20;
/// So many bytes say how long the head is.
const LENGTH_BYTES: usize = 8;

/// The tensors of one or several files.
pub(crate) struct Safetensors {
    files: Vec<Shard>,
}

struct Shard {
    bytes: Bytes,
    metadata: Metadata,
    /// Where the tensors begin.
    begin: usize,
}

enum Bytes {
    Inside(&'static [u8]),
    File(PathBuf, File),
}

/// Which tensor is in which file.
#[derive(Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

impl Safetensors {
    /// A file that is part of the program.
    pub(crate) fn inside(bytes: &'static [u8]) -> Result<Self, LoadError> {
        Ok(Self { files: vec![Shard::new(Bytes::Inside(bytes))?] })
    }

    /// `model.safetensors`, or the files that `model.safetensors.index.json` lists.
    pub(crate) fn open(folder: &Path) -> Result<Self, LoadError> {
        let index = folder.join("model.safetensors.index.json");
        let mut names = vec!["model.safetensors".to_owned()];
        if index.exists() {
            let json =
                std::fs::read(&index).map_err(|source| LoadError::File { path: index.clone(), source })?;
            let index: Index = serde_json::from_slice(&json)
                .map_err(|error| LoadError::Broken(format!("{}: {error}", index.display())))?;
            names = index.weight_map.into_values().collect();
            names.sort_unstable();
            names.dedup();
        }
        let open = |name: String| {
            let path = folder.join(name);
            let file = File::open(&path).map_err(|source| LoadError::File { path: path.clone(), source })?;
            Shard::new(Bytes::File(path, file))
        };
        Ok(Self { files: names.into_iter().map(open).collect::<Result<_, _>>()? })
    }
}

impl Source for Safetensors {
    fn tensor(&self, name: &str) -> Result<Option<Tensor>, LoadError> {
        let found = self.files.iter().find_map(|file| Some((file, file.metadata.info(name)?)));
        let Some((file, info)) = found else { return Ok(None) };
        let kind = match info.dtype {
            Dtype::F32 => Kind::F32,
            Dtype::F16 => Kind::F16,
            Dtype::BF16 => Kind::Bf16,
            other => {
                return Err(LoadError::Unsupported(format!(
                    "weights of the type {other:?}; supported: F32, F16, BF16"
                )));
            }
        };
        let (begin, end) = info.data_offsets;
        let length = end.checked_sub(begin).ok_or_else(|| LoadError::misshapen(name))?;
        let bytes = file.bytes.read(file.begin.saturating_add(begin), length)?;
        Tensor::new(name, kind, info.shape.clone(), bytes).map(Some)
    }

    fn names(&self) -> Vec<String> {
        self.files.iter().flat_map(|file| file.metadata.offset_keys()).collect()
    }

    fn numbers(&self) -> usize {
        let tensors = self.files.iter().flat_map(|file| file.metadata.tensors().into_values());
        tensors.map(|info| info.shape.iter().product::<usize>()).sum()
    }
}

impl Shard {
    fn new(bytes: Bytes) -> Result<Self, LoadError> {
        let broken = |error: &dyn std::fmt::Display| LoadError::Broken(format!("{bytes}: {error}"));
        let length = bytes.read(0, LENGTH_BYTES)?;
        let length = length.as_ref().try_into().map(u64::from_le_bytes).map_err(|error| broken(&error))?;
        if length > MAX_HEAD_BYTES {
            return Err(broken(&"it is not in the safetensors format"));
        }
        let length = usize::try_from(length).map_err(|error| broken(&error))?;
        let head = bytes.read(LENGTH_BYTES, length)?;
        let metadata: Metadata = serde_json::from_slice(&head).map_err(|error| broken(&error))?;
        Ok(Self { begin: LENGTH_BYTES + length, metadata, bytes })
    }
}

impl Bytes {
    fn read(&self, begin: usize, length: usize) -> Result<Cow<'static, [u8]>, LoadError> {
        let too_short = || LoadError::Broken(format!("{self} ends too early"));
        match self {
            Self::Inside(bytes) => bytes
                .get(begin..)
                .and_then(|rest| rest.get(..length))
                .map(Cow::Borrowed)
                .ok_or_else(too_short),
            Self::File(path, file) => {
                // Asked first, as a broken file may claim any length.
                let all =
                    file.metadata().map_err(|source| LoadError::File { path: path.clone(), source })?.len();
                if begin.checked_add(length).is_none_or(|end| end as u64 > all) {
                    return Err(too_short());
                }
                let mut part = vec![0; length];
                file.read_exact_at(&mut part, begin as u64)
                    .map_err(|source| LoadError::File { path: path.clone(), source })?;
                Ok(Cow::Owned(part))
            }
        }
    }
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Inside(_) => formatter.write_str("the weights in the program"),
            Self::File(path, _) => write!(formatter, "{}", path.display()),
        }
    }
}
