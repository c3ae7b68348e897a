//! The whole catalogue, read from a file.

use std::{collections::HashSet, ops::Range};

use crate::{
    file::{self, CatalogFile, RawModel},
    model::{Model, Service},
};

#[derive(Clone, Debug)]
pub struct Catalog {
    /// Description of this installation in `GET /v1`.
    pub service: Service,
    /// Models in the order of the file; never empty.
    pub models: Vec<Model>,
    /// CRC-32 of the file's text, to distinguish catalogues.
    pub checksum: u32,
}

/// A fault in a catalogue, with its location.
#[derive(Debug, thiserror::Error)]
#[error("{file}{}: {reason}", .line.map(|l| format!(":{l}")).unwrap_or_default())]
pub struct CatalogError {
    file: String,
    line: Option<usize>,
    reason: String,
}

impl Catalog {
    /// Reads and checks a catalogue; errors name `file`.
    pub fn parse(text: &str, file: &str) -> Result<Self, CatalogError> {
        let error = |span: Option<Range<usize>>, reason: String| CatalogError {
            file: file.to_owned(),
            line: span.map(|span| line_of(text, span.start)),
            reason,
        };
        let raw: CatalogFile = toml::from_str(text).map_err(|e| error(e.span(), e.message().to_owned()))?;
        if raw.model.is_empty() {
            return Err(error(None, "has no [[model]]".into()));
        }
        file::check_names(&raw.model).map_err(|(at, reason)| error(at, reason))?;
        let check = |model: RawModel| {
            let span = model.id.span();
            model.check().map_err(|(at, reason)| error(Some(at.unwrap_or(span)), reason))
        };
        let models = raw.model.into_iter().map(check).collect::<Result<_, _>>()?;
        Ok(Self { service: raw.service, models, checksum: crc32fast::hash(text.as_bytes()) })
    }

    /// Finds the model with exactly this id or alias.
    pub fn model(&self, name: &str) -> Option<&Model> {
        self.models.iter().find(|model| model.id == name || model.aliases.iter().any(|alias| alias == name))
    }

    /// Replaces each alias in a list of models with the model's id, since the ledger knows only ids. Unknown names
    /// stay, because a list may name a model that is added later.
    pub fn name_by_id(&self, models: &mut Vec<String>) {
        for name in models.iter_mut() {
            if let Some(model) = self.model(name) {
                name.clone_from(&model.id);
            }
        }
        let mut listed = HashSet::new();
        models.retain(|name| listed.insert(name.clone()));
    }

    /// Returns the ids of all models, for error messages.
    pub fn ids(&self) -> Vec<String> {
        self.models.iter().map(|model| model.id.clone()).collect()
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|b| *b == b'\n').count()
}
