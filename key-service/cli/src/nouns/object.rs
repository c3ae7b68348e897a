//! The commands that keys, groups and webhooks share. They have a flag for each setting in the table of fields.

use std::{io::Write, marker::PhantomData, str::FromStr};

use anyhow::anyhow;
use clap::{Arg, ArgMatches, Args, FromArgMatches, Subcommand};
use serde_json::json;
use shared::{
    ids::{AccountId, InvalidId},
    table,
    time::Timestamp,
    wire::{Field, Fields, Kind, Object},
};

use crate::{
    arguments::operator,
    failure::{operator_error, refused, store_error},
    output::{write_json, write_json_object},
};
use domain::settings::Patch;
use key_service_management::{
    Error, Management,
    governed::{Acting, Governed, Issued},
    listing::Listing,
};
use key_service_objects::{Shown, settings, with_secret};
use key_service_store::store::Order;

/// Number of objects to read at a time, which limits a command's memory.
const READ_AT_ONCE: usize = 500;

/// Names an account with a flag.
#[derive(Debug, Args)]
pub struct InAccount {
    /// The account's name
    #[arg(long, value_name = "NAME")]
    account: String,
}

/// Names an account and an object in the account with flags.
#[derive(Debug, Args)]
pub struct NamedObject<I: FromStr<Err = InvalidId> + Clone + Send + Sync + 'static> {
    #[command(flatten)]
    pub(crate) of: InAccount,
    /// Id of the object
    #[arg(long, value_parser = I::from_str)]
    pub(crate) id: I,
}

impl InAccount {
    pub(crate) async fn find(&self, management: &Management) -> anyhow::Result<AccountId> {
        management.account(&self.account).await.map_err(operator_error)
    }

    /// Returns the account, with the operator as the actor.
    pub(crate) async fn by<'a>(&self, management: &'a Management) -> anyhow::Result<Acting<'a>> {
        Ok(management.by(self.find(management).await?, operator()))
    }
}

/// The settings that flags gave, as JSON in the management API's format: all settings of a new object if `NEW`,
/// otherwise changed settings.
#[derive(Debug)]
pub struct SettingFlags<F, const NEW: bool>(String, PhantomData<F>);

fn rows<F: Fields>(is_new: bool) -> impl Iterator<Item = Field> {
    F::settings().map(Fields::row).filter(move |row| is_new || !row.is_fixed)
}

/// Converts a flag's value to JSON. `null` stays null for settings that it clears.
fn json_of(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Line { .. } | Kind::Url => json!(text).to_string(),
        Kind::ExternalId { .. } | Kind::Time | Kind::Group if text != "null" => json!(text).to_string(),
        Kind::ExternalId { .. }
        | Kind::Time
        | Kind::Group
        | Kind::Amount
        | Kind::Count { .. }
        | Kind::Limits
        | Kind::Raise
        | Kind::Models
        | Kind::Metadata
        | Kind::EventTypes
        | Kind::Flag
        | Kind::KeyDefaults
        | Kind::Answered(_) => text.to_owned(),
    }
}

impl<F: Fields, const NEW: bool> SettingFlags<F, NEW> {
    /// Parses the settings, with the same checks as the management API.
    pub(crate) fn read<P: Patch>(&self) -> anyhow::Result<P> {
        settings(self.0.as_bytes(), NEW).map_err(|error| anyhow!(error.message))
    }
}

impl<F: Fields, const NEW: bool> FromArgMatches for SettingFlags<F, NEW> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = rows::<F>(NEW).filter_map(|row| Some((row, matches.get_one::<String>(row.name)?)));
        let member = |(row, text): (Field, &String)| format!("{:?}:{}", row.name, json_of(row.kind, text));
        Ok(Self(format!("{{{}}}", given.map(member).collect::<Vec<_>>().join(",")), PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(|flags| *self = flags)
    }
}

impl<F: Fields, const NEW: bool> Args for SettingFlags<F, NEW> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(rows::<F>(NEW).map(|row| {
            // `leak` runs once for each flag in a process.
            let flag: &'static str = row.name.replace('_', "-").leak();
            Arg::new(row.name).long(flag).help(row.description).required(NEW && row.is_required)
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Commands for every kind of object.
#[derive(Debug, Subcommand)]
pub enum ObjectCommand<F: Fields, I: FromStr<Err = InvalidId> + Clone + Send + Sync + 'static> {
    /// List all of the account, oldest first
    List {
        #[command(flatten)]
        of: InAccount,
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Show one as JSON
    Show(NamedObject<I>),
    /// Change one, and print it as JSON. Settings without a flag stay unchanged; the value null clears a setting
    Update {
        #[command(flatten)]
        object: NamedObject<I>,
        #[command(flatten)]
        settings: SettingFlags<F, false>,
    },
}

/// A kind of object that `list` prints as a table.
pub(crate) trait Tabled: Governed<Id: FromStr<Err = InvalidId>, Filter: Default> + Shown {
    const HEAD: &'static [&'static str];

    fn row(&self, now: Timestamp) -> Vec<String>;
}

pub(crate) async fn run<T: Tabled>(
    command: ObjectCommand<<T::Object as Object>::Fields, T::Id>,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let now = management.now();
    let object = match command {
        ObjectCommand::List { of, json } => {
            let objects: Vec<T> = all(&of, management).await?;
            if json {
                return write_json(out, objects.iter().map(|object| object.shown(now)));
            }
            return Ok(table::write(out, T::HEAD, objects.iter().map(|object| object.row(now)))?);
        }
        ObjectCommand::Show(NamedObject { of, id }) => T::fetch(of.by(management).await?, id).await,
        ObjectCommand::Update { object: NamedObject { of, id }, settings } => {
            T::update(of.by(management).await?, id, settings.read()?).await
        }
    };
    write_json_object(out, &object.map_err(refused("show"))?.shown(now))
}

/// Returns the cell for a value that may be absent.
pub(crate) fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

pub(crate) fn print_made<T: Governed + Shown>(
    Issued { made, secret }: Issued<T>,
    management: &Management,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let (object, now) = (made.into_inner(), management.now());
    match secret {
        Some(secret) => write_json_object(out, &with_secret(&object, &secret, now)),
        None => write_json_object(out, &object.shown(now)),
    }
}

/// Reads all objects of an account, oldest first.
async fn all<T: Tabled>(of: &InAccount, management: &Management) -> anyhow::Result<Vec<T>> {
    let (account, filter) = (of.find(management).await?, T::Filter::default());
    let mut listing = Listing { after: None, order: Order::Ascending, filter, limit: READ_AT_ONCE };
    let mut objects: Vec<T> = Vec::new();
    loop {
        let page = management.list(account, &listing).await.map_err(|error| match error {
            Error::Refused(_) => anyhow!("the list changed while it was read; try again"),
            Error::Store(cause) => store_error(&cause, "list"),
        })?;
        objects.extend(page.items);
        listing.after = objects.last().map(T::id);
        if !page.has_more {
            return Ok(objects);
        }
    }
}
