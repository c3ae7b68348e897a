//! The `catalogue` commands: entries from public price lists, and checks.

mod entry;
#[cfg(test)]
mod fuzz;
mod price_list;

#[cfg(test)]
mod tests;

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use clap::Subcommand;
use shared::money::NanoUsd;
use shared_catalog::{Catalog, Model, Preset, Upstream, hints};
use shared_client::server_check::{FindingKind, ServerFinding, check_servers};
use shared_config::Common;

use self::price_list::Format;
pub use self::{
    entry::CatalogueEntry,
    price_list::{ListedModel, PriceList},
};

#[derive(Debug, Subcommand)]
pub enum Catalogue {
    /// Print catalogue entries for models from a public price list, to review and complete
    ///
    /// For vendors that `init` knows, entries include the upstream's address, the variable with its API key, and
    /// further settings.
    Import {
        /// The price list: LiteLLM's JSON, or a models.dev file (for one model, with the id as its name)
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// Format of the list
        #[arg(long)]
        format: Format,
        /// Ids of models in the list
        #[arg(long, value_name = "ID", required = true, num_args = 1..)]
        model: Vec<String>,
        /// Take the list's prices as costs, and sell at this multiple of them, such as 1.2
        #[arg(long, value_name = "FACTOR", value_parser = factor)]
        markup: Option<String>,
    },
    /// Check the catalogue, and list models that may lose money
    Check {
        /// Public price list to compare with (models.dev's .toml or LiteLLM's .json); any difference is an error
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
        /// Ask each upstream's server for its models and context windows, and list what the catalogue promises but that
        /// server does not have; anything listed is an error
        #[arg(long)]
        ask: bool,
    },
}

/// Runs a catalogue command. It needs no store, and works while the services run.
pub async fn catalogue(
    command: &Catalogue,
    common: &Common,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        Catalogue::Import { from, format, model, markup } => {
            let list =
                PriceList::read(from, *format).with_context(|| format!("--from {}", from.display()))?;
            import(&list, model, markup.as_deref(), out)
        }
        Catalogue::Check { against, ask } => {
            let catalog = common.catalog()?;
            write_hints(&catalog, out)?;
            let asked = if *ask { self::ask(&catalog, out).await } else { Ok(()) };
            against.as_deref().map_or(Ok(()), |file| compare(&catalog, file, out)).and(asked)
        }
    }
}

fn import(
    list: &PriceList,
    models: &[String],
    markup: Option<&str>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    // Reads all models before printing the first, because a partial list could be mistaken for a complete list.
    let listed = models.iter().map(|id| {
        let found = list.model(id).with_context(|| format!("--model {id}"))?;
        found.with_context(|| format!("--model {id}: the list does not have this model"))
    });
    let presets = Preset::all()?;
    for listed in listed.collect::<anyhow::Result<Vec<ListedModel>>>()? {
        let owner = listed.owner.as_deref();
        let preset = owner.and_then(|owner| presets.iter().find(|preset| preset.is_listed_as(owner)));
        let upstream_model = name_at(preset, &listed);
        out.write_all(CatalogueEntry { listed: &listed, preset, upstream_model, markup }.text().as_bytes())?;
    }
    Ok(())
}

/// Returns the vendor's own name for a model, without the vendor's prefix in LiteLLM's list.
fn name_at<'a>(preset: Option<&Preset>, listed: &'a ListedModel) -> &'a str {
    let owner = preset.and(listed.owner.as_deref());
    let stripped = owner.and_then(|owner| listed.id.strip_prefix(owner)?.strip_prefix('/'));
    stripped.unwrap_or(&listed.id)
}

/// Writes hints about models that may lose money although the catalogue is valid.
fn write_hints(catalog: &Catalog, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    for (model, upstream, hint) in hints(catalog) {
        writeln!(out, "model \"{}\", upstream \"{}\": {hint}", model.id, upstream.model)?;
    }
    writeln!(out, "The catalogue has no fault (models: {}).", catalog.models.len())?;
    Ok(())
}

/// Writes each cost that differs from a public list's price. If an upstream's cost is unknown, writes each price that
/// is below the list's price. Fails if anything differs.
fn compare(catalog: &Catalog, file: &Path, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let named = || format!("--against {}", file.display());
    let list = PriceList::open(file).with_context(named)?;
    let mut differences = 0;
    for (model, upstream) in upstreams(catalog) {
        let (id, name) = (&model.id, &upstream.model);
        let found = [name, id].into_iter().find_map(|name| list.model(name).transpose());
        let Some(listed) = found.transpose().with_context(named)? else {
            writeln!(out, "model \"{id}\", upstream \"{name}\": not in the list.")?;
            continue;
        };
        // Only rates in the list can be compared.
        let ours = upstream.cost.as_ref().unwrap_or(&model.price);
        for pair in ours.beside(&listed.price).filter(|pair| listed.rates[pair.field]) {
            let (ours, theirs) = (pair.first, pair.second);
            if upstream.cost.is_some() && ours != theirs {
                writeln!(
                    out,
                    "model \"{id}\", upstream \"{name}\": {pair} costs {ours} here and {theirs} in the list."
                )?;
            } else if upstream.cost.is_none() && ours < theirs {
                writeln!(
                    out,
                    "model \"{id}\", upstream \"{name}\": {pair} sells for {ours} and costs {theirs} in the list."
                )?;
            } else {
                continue;
            }
            differences += 1;
        }
    }
    match differences {
        0 => Ok(()),
        n => bail!("the catalogue differs from {} (differences: {n})", file.display()),
    }
}

/// Writes what the catalogue promises but the servers do not offer. Fails if there is anything to write. A server that
/// does not answer does not count as a failure.
async fn ask(catalog: &Catalog, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let mut broken = 0;
    for ServerFinding { model, upstream, kind } in check_servers(catalog).await {
        let found = match kind {
            FindingKind::Promise(found) => {
                broken += 1;
                found
            }
            FindingKind::NotTold(found) => found,
        };
        writeln!(out, "model \"{model}\", upstream \"{upstream}\": {found}.")?;
    }
    match broken {
        0 => Ok(()),
        n => bail!("the catalogue promises more than the servers have (promises: {n})"),
    }
}

fn upstreams(catalog: &Catalog) -> impl Iterator<Item = (&Model, &Upstream)> {
    catalog.models.iter().flat_map(|model| model.upstreams.iter().map(move |upstream| (model, upstream)))
}

/// Parses a markup: a decimal number of at least 1.
fn factor(text: &str) -> Result<String, String> {
    match NanoUsd::parse(text) {
        Ok(factor) if factor >= NanoUsd::from_usd(1) => Ok(text.to_owned()),
        Ok(_) | Err(_) => Err("must be a number of at least 1".into()),
    }
}
