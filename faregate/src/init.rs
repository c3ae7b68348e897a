//! `faregate init` writes a first catalogue, for one model of a vendor or of a local server.
//!
//! It takes answers from flags, and asks on a terminal for those that no flag gives. It writes the file last, once
//! everything is known, and neither writes nor shows credentials.

mod ask;
mod check;
mod draft;
mod file;
mod models;
mod options;
mod terminal;
mod vendor;

use std::env;

use anyhow::{Context, anyhow, bail};
use key_service_cli::{ListedModel, PriceList};
use shared::clock::Clock;
use shared_catalog::{Catalog, Model, Preset, ServerDescription, Source, Upstream};
use tokio::signal::unix::{SignalKind, signal};

use self::{
    ask::AskRefused,
    draft::{Sizes, ToldSizes},
    models::{Chosen, ModelNames},
    options::PriceSource,
    terminal::{Terminal, say},
    vendor::{UPSTREAM_KEY, Vendor, VendorNamed},
};
pub(crate) use options::InitOptions;

/// Runs the command. Ctrl-C before the file is written ends the command and leaves nothing behind.
pub(crate) async fn run(options: InitOptions, clock: &dyn Clock) -> anyhow::Result<()> {
    let mut interrupts = signal(SignalKind::interrupt())?;
    let terminal = Terminal::open();
    let missing = options.missing();
    if terminal.is_none() && !missing.is_empty() {
        bail!(
            "there is no terminal to ask on; add the missing flags: {} (`faregate init --help` explains them)",
            missing.join("; ")
        );
    }
    let init = Init { options, presets: Preset::all()?, terminal };
    tokio::select! {
        biased;
        _ = interrupts.recv() => bail!("interrupted; nothing was written"),
        done = init.write(clock) => done,
    }
}

struct Init {
    options: InitOptions,
    presets: Vec<Preset>,
    terminal: Option<Terminal>,
}

/// A server, and the models that it listed.
struct Asked {
    vendor: Vendor,
    upstream: Upstream,
    /// The server's list of models; empty if the server has no such list.
    list: ServerDescription,
}

impl Init {
    async fn write(mut self, clock: &dyn Clock) -> anyhow::Result<()> {
        let out = self.options.out.clone();
        file::must_be_new(&out)?;
        let vendor = self.vendor().await?;
        let asked = self.ask(vendor).await?;
        let name = self.model(&asked).await?;
        let preset = &asked.vendor.preset;
        let listed = self.price(preset, &name).await?;
        let sizes = Sizes::of(ToldSizes {
            named_window: self.options.context_window,
            named_output: self.options.max_output_tokens,
            served_window: ask::window(&asked.upstream, &asked.list, &name).await,
            usual_window: preset.context_window,
            listed_window: listed.context_window,
            listed_output: listed.max_output_tokens,
        });
        let sizes = sizes.map_err(|e| anyhow!(e))?;
        let text = draft::text(preset, listed, &name, sizes);
        let model = Catalog::parse(&text, "the catalogue")?.models.remove(0);
        self.check(&model).await?;
        file::publish(&out, &text, clock)?;
        Ok(say(&draft::farewell(preset, &name, sizes, &out))?)
    }

    /// Takes the vendor from flags, or asks for it.
    async fn vendor(&mut self) -> anyhow::Result<Vendor> {
        let Self { options, presets, terminal } = self;
        let has_upstream_key = env::var_os(UPSTREAM_KEY).is_some();
        let named = VendorNamed {
            name: options.vendor.as_deref(),
            address: options.address.as_deref(),
            api_key_env: options.api_key_env.as_deref(),
        };
        let by_flags = Vendor::of(presets, named, has_upstream_key);
        let mut vendor = by_flags.map_err(|e| anyhow!(e))?;
        while vendor.is_none()
            && let Some(terminal) = terminal
        {
            say(&format!("Vendors and local servers:\n{}", vendor::menu(presets)))?;
            let answer = terminal.ask("Vendor (name or number), or the address of another server:").await?;
            let chosen = VendorNamed { api_key_env: named.api_key_env, ..vendor::chosen(presets, &answer) };
            vendor = Vendor::of(presets, chosen, has_upstream_key).or_else(|e| say(&e).map(|()| None))?;
        }
        let mut vendor = vendor.context("--vendor or --address is missing")?;
        while let Some(blank) = vendor.blank() {
            let Some(terminal) = terminal else { bail!("--address is missing: {blank}") };
            let answer = terminal.ask(&format!("Address ({blank}):")).await?;
            let name = Some(vendor.preset.name.as_str());
            let here = VendorNamed { name, address: Some(&answer), api_key_env: named.api_key_env };
            match Vendor::of(presets, here, has_upstream_key) {
                Ok(Some(here)) => vendor = here,
                Ok(None) => {}
                Err(e) => say(&e)?,
            }
        }
        Ok(vendor)
    }

    /// Checks that the credential is set, and asks the vendor for its list of models.
    async fn ask(&self, vendor: Vendor) -> anyhow::Result<Asked> {
        let upstream = upstream(&vendor.preset)?;
        for header in &upstream.access.headers {
            if let Source::Variable(variable) = &header.source
                && env::var(variable).map_or(true, |value| value.trim().is_empty())
            {
                let title = &vendor.preset.title;
                bail!(
                    "{variable} is not set: export the key for {title} in it, or name another variable with \
                     --api-key-env. The key is only read from there and never written to a file"
                );
            }
        }
        let list = match ask::models(&upstream).await {
            Ok(list) => list,
            Err(AskRefused::NoSuchPath(_)) if vendor.preset.names_unlisted => ServerDescription::default(),
            Err(AskRefused::NoSuchPath(e) | AskRefused::Other(e)) => bail!(e),
        };
        let vendor = vendor.recognised(&self.presets, list.owner());
        let upstream = self::upstream(&vendor.preset)?;
        Ok(Asked { vendor, upstream, list })
    }

    /// Takes the model from a flag, or asks for it.
    async fn model(&mut self, asked: &Asked) -> anyhow::Result<String> {
        let all = ModelNames::of(asked.list.names());
        let is_free = asked.vendor.preset.names_unlisted;
        if let Some(name) = &self.options.model {
            if !is_free && !all.is_empty() && !asked.list.has(name) {
                bail!("--model: {}", all.unknown(name));
            }
            return Ok(name.clone());
        }
        let terminal = self.terminal.as_mut().context("--model is missing")?;
        let mut menu = all.clone();
        loop {
            if !menu.is_empty() {
                say(&format!("Models of {}:\n{}", asked.vendor.preset.title, menu.menu()))?;
            }
            let answer = terminal.ask("Model (name or number):").await?;
            match menu.chosen(&all, &answer) {
                Chosen::Model(name) => return Ok(name),
                Chosen::Among(among) if !is_free => menu = among,
                Chosen::Among(_) | Chosen::Nothing if answer.is_empty() => {}
                Chosen::Among(_) | Chosen::Nothing if is_free || all.is_empty() => return Ok(answer),
                Chosen::Among(_) | Chosen::Nothing => say(&all.unknown(&answer))?,
            }
        }
    }

    /// Takes the price from flags, or asks for it.
    async fn price(&mut self, preset: &Preset, name: &str) -> anyhow::Result<ListedModel> {
        if let Some(source) = self.options.price.source() {
            return priced(&source, preset, name);
        }
        let terminal = self.terminal.as_mut().context("--prices, --price or --free is missing")?;
        say(
            "The price to charge for the model. Enter rates in USD per million tokens, such as input=3,output=15; or \
             the file of a price list (LiteLLM's .json or models.dev's .toml; `faregate init --help` says where to \
             find them); or free",
        )?;
        loop {
            let answer = terminal.ask("Price (rates, a file, or free):").await?;
            let source = PriceSource::parse(&answer).map_err(|e| anyhow!(e));
            match source.and_then(|source| priced(&source, preset, name)) {
                Ok(listed) => return Ok(listed),
                Err(e) => say(&format!("{e:#}"))?,
            }
        }
    }

    /// Sends one request and shows its cost, if `--check` is set.
    async fn check(&mut self, model: &Model) -> anyhow::Result<()> {
        if !self.options.check {
            return Ok(());
        }
        if !model.serves.chat {
            bail!("--check sends a chat, but this model only makes embeddings: leave --check out");
        }
        for upstream in &model.upstreams {
            let answer = match ask::generation(upstream).await {
                Ok(answer) => answer,
                Err(AskRefused::NoSuchPath(e)) => {
                    bail!("--check: {e}. If the address is right, check --model. Nothing was written")
                }
                Err(AskRefused::Other(e)) => bail!("--check: {e}. Nothing was written"),
            };
            let billed = check::bill(model, &answer);
            let (usage, cost) = billed.context(
                "--check: the server answers, but reports no usage that can be billed. Nothing was written. Without \
                 --check the model is accepted, and its bills are estimates",
            )?;
            let (prompt, completion) = (usage.prompt, usage.completion);
            say(&format!("checked: {prompt} prompt tokens and {completion} output tokens cost {cost} USD"))?;
        }
        Ok(())
    }
}

/// Reads a preset in the same way as a server reads the written catalogue.
fn upstream(preset: &Preset) -> anyhow::Result<Upstream> {
    draft::upstream(preset)?.context("the preset has no upstream")
}

fn priced(source: &PriceSource, preset: &Preset, name: &str) -> anyhow::Result<ListedModel> {
    match source {
        PriceSource::Free => Ok(draft::free(name)),
        PriceSource::Rates(rates) => ListedModel::at_rates(name, *rates),
        PriceSource::List(file) => {
            let named = || format!("--prices {}", file.display());
            let list = PriceList::open(file).with_context(named)?;
            let listed = list.model_of(preset, name).with_context(named)?;
            listed.with_context(|| {
                format!(
                    "{}: no price for \"{name}\" of {}; set one with --price input=…,output=… or use --free",
                    named(),
                    preset.title
                )
            })
        }
    }
}
