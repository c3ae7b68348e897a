//! The figures that an audit compares.

use std::fmt;

use shared::{
    calendar::Per,
    ids::{GenerationId, GroupId, KeyId},
    money::NanoUsd,
    tokens::{Usage, UsageDetails},
};

use crate::books::audit::{owner::BudgetOwner, stored::Stored};
use crate::books::usage::{Counts, Day, GroupKeys, Margin, PartCounts, Sums};

/// A recorded figure that differs from the proven value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    pub figure: Figure,
    pub recorded: Quantity,
    /// The value that entries, holds and deposits prove.
    pub proven: Quantity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Usd(NanoUsd),
    /// A number of entries or requests.
    Count(u64),
}

/// Whose requests daily counters count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SumOwner {
    /// A key and a model.
    Payer(KeyId, String),
    Model(String),
    /// A group and its child groups.
    Group(GroupId),
    /// The users whose counts are in the record with this number.
    Users(u8),
}

/// A recorded figure that an audit can prove. Each variant says what it must be equal to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Figure {
    /// A key's balance after the entry with this number: the balance before it plus the entry's change.
    Entry(KeyId, u64),
    /// Number of the previous entry of the key or group, as recorded in the entry with this number.
    Previous(BudgetOwner, u64),
    /// Number of the last entry of the key or group.
    Last(BudgetOwner),
    /// The `used` of a key (the balance after the last entry) or of a group (the sum of its entries). A key or group
    /// that does not exist is recorded as zero.
    Used(BudgetOwner),
    /// The `held` of a key or a group: the sum of its open holds.
    BudgetHeld(BudgetOwner),
    /// The spend in a window: the sum of those of the window's entries that are known.
    Window(BudgetOwner, Per),
    /// The account's `held`: the sum of all open holds.
    Held,
    /// The account's credit: deposits minus refunds and the `used` of all keys.
    Credit,
    /// What was paid into a group's wallet: the sum of the changes by its payments and refunds.
    Paid(GroupId),
    /// The limit of a wallet: its opening amount plus what was paid.
    WalletLimit(GroupId),
    /// Requests in flight of a key or group with bounds: the number of its open holds that count as such.
    InFlight(BudgetOwner),
    /// Number of entries from the journal's first entry to the account's last entry.
    Entries,
    /// The amount that the last entry bills for a generation: the sum of the generation's changes.
    Bill(GenerationId),
    /// The charges on a day. They must equal the sum over the entries.
    Sum(SumOwner, Day),
    /// A counter of a key and a model on a day, except the charge. It must equal the sum over the entries.
    KeyCount(KeyId, Day, String, Counter),
    /// A counter of a model on a day, except the charge. It must equal the sum over the entries.
    ModelCount(Day, String, Counter),
    /// A counter of a part of a day. It must equal the sum over the entries.
    Part(DayPart, Day, Counter),
    /// Whether the key's list of sums includes this day and model, as it must if the sum exists.
    Listed(KeyId, Day, String),
    /// The amount of an open hold, compared with the index of open holds.
    Hold(GenerationId),
    /// The tick at which a hold expires, compared with the index of open holds.
    HoldLease(GenerationId),
    /// The account's number of keys, compared with the list of keys.
    Keys,
    /// The account's number of groups, compared with the list of groups.
    Groups,
    /// A group's number of keys, compared with the list of the group's keys.
    KeysOfGroup(GroupId),
    /// A group's number of child groups, compared with the list of child groups.
    ChildGroups(GroupId),
    /// Number of the journal's first entry, compared with the first entry that the store cannot have dropped yet.
    FirstEntry,
    /// Number of the account's last event, compared with the log of events.
    LastEvent,
    /// Number of kept events, compared with the log of events.
    Events,
    /// Time of the account's last expiry in milliseconds, compared with the journal.
    LastExpiry,
    /// Number of the last entry that a day's counters include.
    LastOfDay(SumOwner, Day),
    /// Whether a record or index entry exists, as 1 or 0.
    Stored(Stored),
}

/// A part of a day that is counted separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DayPart {
    /// Requests of one key for one model in one hour.
    KeyHour(KeyId, String, u8),
    /// Requests for one model in one hour.
    ModelHour(String, u8),
    /// Requests of some of a group's keys for one model.
    GroupModel(GroupId, String, GroupKeys),
    /// Requests of some of a group's keys for one model in one hour.
    GroupHour(GroupId, String, GroupKeys, u8),
    /// Requests of one user, under the name that the caller sent.
    User(String),
    /// Requests of the users that the record with this number counts only together.
    OtherUsers(u8),
}

impl DayPart {
    /// Returns the part's name in reports.
    const fn name(&self) -> &'static str {
        match self {
            Self::KeyHour(..) | Self::ModelHour(..) | Self::GroupHour(..) => "hour_of_day",
            Self::GroupModel(..) => "model_of_group_on_day",
            Self::User(_) | Self::OtherUsers(_) => "user_on_day",
        }
    }
}

impl fmt::Display for GroupKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(None) => f.write_str("its own keys"),
            Self::Own(Some(parent)) => write!(f, "its own keys in {parent}"),
            Self::Below => f.write_str("keys of its child groups"),
        }
    }
}

impl fmt::Display for DayPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyHour(key, model, hour) => write!(f, "{key} for {model} at {hour:02}:00"),
            Self::ModelHour(model, hour) => write!(f, "{model} at {hour:02}:00"),
            Self::GroupModel(group, model, keys) => write!(f, "{group} for {model} and {keys}"),
            Self::GroupHour(group, model, keys, hour) => {
                write!(f, "{group} for {model} and {keys} at {hour:02}:00")
            }
            Self::User(user) => write!(f, "the user {user:?}"),
            Self::OtherUsers(part) => write!(f, "other users of record {part}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Amount charged; only for parts of a day.
    Charged,
    /// Billed generations, including free generations.
    Requests,
    /// Prompt and completion tokens together, for a model or a group.
    Tokens,
    Prompt,
    Cached,
    Completion,
    CacheWrite,
    /// Prompt tokens that were written to a cache that keeps them for an hour or longer.
    CacheWriteLong,
    AudioInput,
    Images,
    Reasoning,
    AudioOutput,
    UpstreamCost,
    /// Amount charged for generations whose upstream cost is known.
    ChargedAtKnownCost,
}

impl Counter {
    /// Returns the counter's name in reports, and its description for people.
    const fn texts(self) -> [&'static str; 2] {
        match self {
            Self::Charged => ["charged_on_day", "charges"],
            Self::Requests => ["requests_on_day", "requests"],
            Self::Tokens => ["tokens_on_day", "tokens"],
            Self::Prompt => ["prompt_tokens_on_day", "prompt tokens"],
            Self::Cached => ["cached_tokens_on_day", "cached tokens"],
            Self::Completion => ["completion_tokens_on_day", "completion tokens"],
            Self::CacheWrite => ["cache_write_tokens_on_day", "cache write tokens"],
            Self::CacheWriteLong => ["cache_write_long_tokens_on_day", "long cache write tokens"],
            Self::AudioInput => ["audio_input_tokens_on_day", "audio input tokens"],
            Self::Images => ["images_on_day", "images"],
            Self::Reasoning => ["reasoning_tokens_on_day", "reasoning tokens"],
            Self::AudioOutput => ["audio_output_tokens_on_day", "audio output tokens"],
            Self::UpstreamCost => ["upstream_cost_on_day", "upstream cost"],
            Self::ChargedAtKnownCost => ["charged_at_known_cost_on_day", "charges at known cost"],
        }
    }

    pub const fn name(self) -> &'static str {
        let [name, _] = self.texts();
        name
    }

    pub const fn as_words(self) -> &'static str {
        let [_, words] = self.texts();
        words
    }

    pub fn of_counts(counts: &Counts) -> [(Self, Quantity); 12] {
        let Counts { requests, usage, charged: _, upstream_cost, charged_at_known_cost } = *counts;
        let Usage { prompt, cached, completion, details } = usage;
        let UsageDetails { cache_write, cache_write_long, audio_input, images, reasoning, audio_output } =
            details;
        [
            (Self::Requests, Quantity::Count(requests)),
            (Self::Prompt, Quantity::Count(prompt)),
            (Self::Cached, Quantity::Count(cached)),
            (Self::Completion, Quantity::Count(completion)),
            (Self::CacheWrite, Quantity::Count(cache_write)),
            (Self::CacheWriteLong, Quantity::Count(cache_write_long)),
            (Self::AudioInput, Quantity::Count(audio_input)),
            (Self::Images, Quantity::Count(images)),
            (Self::Reasoning, Quantity::Count(reasoning)),
            (Self::AudioOutput, Quantity::Count(audio_output)),
            (Self::UpstreamCost, Quantity::Usd(upstream_cost)),
            (Self::ChargedAtKnownCost, Quantity::Usd(charged_at_known_cost)),
        ]
    }

    pub const fn of_margin(margin: &Margin) -> [(Self, Quantity); 4] {
        let Margin { sums: Sums { requests, tokens, charged: _ }, upstream_cost, charged_at_known_cost } =
            *margin;
        [
            (Self::Requests, Quantity::Count(requests)),
            (Self::Tokens, Quantity::Count(tokens)),
            (Self::UpstreamCost, Quantity::Usd(upstream_cost)),
            (Self::ChargedAtKnownCost, Quantity::Usd(charged_at_known_cost)),
        ]
    }

    pub const fn of_part(part: &PartCounts) -> [(Self, Quantity); 5] {
        let PartCounts { requests, prompt, cached, completion, charged } = *part;
        [
            (Self::Charged, Quantity::Usd(charged)),
            (Self::Requests, Quantity::Count(requests)),
            (Self::Prompt, Quantity::Count(prompt)),
            (Self::Cached, Quantity::Count(cached)),
            (Self::Completion, Quantity::Count(completion)),
        ]
    }
}

impl Figure {
    /// Returns the figure's name in reports.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Entry(..) => "used_after",
            Self::Previous(..) => "previous_entry",
            Self::Last(_) => "last_entry",
            Self::Used(_) => "used",
            Self::BudgetHeld(_) | Self::Held => "held",
            Self::Window(_, per) => match per {
                Per::Hour => "used_in_hour",
                Per::Day => "used_in_day",
                Per::Week => "used_in_week",
                Per::Month => "used_in_month",
            },
            Self::Credit => "credit",
            Self::Paid(_) => "paid",
            Self::WalletLimit(_) => "limit",
            Self::InFlight(_) => "in_flight",
            Self::Entries => "entries",
            Self::Bill(_) => "charged",
            Self::Sum(..) => "charged_on_day",
            Self::KeyCount(.., counter) | Self::ModelCount(.., counter) => counter.name(),
            Self::Part(part, ..) => part.name(),
            Self::Listed(..) => "listed",
            Self::Hold(_) => "hold",
            Self::HoldLease(_) => "hold_lease",
            Self::Keys | Self::KeysOfGroup(_) => "keys",
            Self::Groups => "groups",
            Self::ChildGroups(_) => "child_groups",
            Self::FirstEntry => "first_entry",
            Self::LastEvent => "last_event",
            Self::Events => "events",
            Self::LastExpiry => "last_expiry",
            Self::LastOfDay(..) => "last_entry_of_day",
            Self::Stored(_) => "stored",
        }
    }

    /// Returns the key or group that the figure belongs to; `None` for a figure of the account.
    pub const fn owner(&self) -> Option<BudgetOwner> {
        match self {
            Self::Previous(of, _)
            | Self::Last(of)
            | Self::Used(of)
            | Self::BudgetHeld(of)
            | Self::Window(of, _)
            | Self::InFlight(of) => Some(*of),
            Self::Stored(stored) => stored.owner(),
            Self::Entry(key, _)
            | Self::Sum(SumOwner::Payer(key, _), _)
            | Self::LastOfDay(SumOwner::Payer(key, _), _)
            | Self::KeyCount(key, ..)
            | Self::Part(DayPart::KeyHour(key, ..), ..)
            | Self::Listed(key, ..) => Some(BudgetOwner::Key(*key)),
            Self::Sum(SumOwner::Group(group), _)
            | Self::LastOfDay(SumOwner::Group(group), _)
            | Self::Part(DayPart::GroupModel(group, ..) | DayPart::GroupHour(group, ..), ..)
            | Self::Paid(group)
            | Self::WalletLimit(group)
            | Self::KeysOfGroup(group)
            | Self::ChildGroups(group) => Some(BudgetOwner::Group(*group)),
            Self::Sum(SumOwner::Model(_) | SumOwner::Users(_), _)
            | Self::LastOfDay(SumOwner::Model(_) | SumOwner::Users(_), _)
            | Self::Part(..)
            | Self::Held
            | Self::Credit
            | Self::Entries
            | Self::Bill(_)
            | Self::ModelCount(..)
            | Self::Hold(_)
            | Self::HoldLease(_)
            | Self::Keys
            | Self::Groups
            | Self::FirstEntry
            | Self::LastEvent
            | Self::Events
            | Self::LastExpiry => None,
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usd(amount) => write!(f, "{amount} USD"),
            Self::Count(count) => count.fmt(f),
        }
    }
}
