//! Settings of keys and groups: where each setting is stored, and how a change is applied. `shared::wire` has a row for
//! each field with its name, type, checks and description.

use std::collections::BTreeMap;

use shared::{
    money::NanoUsd,
    time::Timestamp,
    wire::{
        AccountField, Bound, Fields, Kept, Limit, LimitWindow, MAX_METADATA, Raise, SuspensionField, Value,
    },
};

use crate::{
    event::Change,
    ledger::{Bounds, BoundsPatch, Budget},
};

/// Names and values chosen by the caller.
pub type Metadata = BTreeMap<String, String>;

/// A change to metadata: which names get a value, and which names are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataPatch {
    /// Whether to remove all earlier names before applying `changes`.
    pub is_cleared: bool,
    /// Names with a new value; `None` removes the name.
    pub changes: BTreeMap<String, Option<String>>,
}

/// A change to an object's settings, or the settings of a new object.
pub trait Patch: Default {
    type Field: Fields;

    /// Sets a field. Returns `false` if the field is not a setting, or the value has another type.
    #[must_use]
    fn set(&mut self, field: Self::Field, value: Value) -> bool;
}

/// A change that is merged into the stored value, as RFC 7396 describes.
pub(crate) trait Merge: Sized {
    /// The stored setting that a change is merged into.
    type Kept;

    /// Converts a value to a change; `None` if the value has another type.
    fn from_value(value: Value) -> Option<Self>;

    fn apply(&self, kept: &mut Self::Kept, now: Timestamp);

    fn value_of(kept: &Self::Kept) -> Value;
}

impl MetadataPatch {
    /// Returns whether `metadata` still has no more names than allowed after this change.
    pub fn fits(&self, metadata: &Metadata, now: Timestamp) -> bool {
        let mut changed = metadata.clone();
        self.apply(&mut changed, now);
        changed.len() <= MAX_METADATA
    }
}

impl Merge for MetadataPatch {
    type Kept = Metadata;

    fn from_value(value: Value) -> Option<Self> {
        if value == Value::Null {
            return Some(Self { is_cleared: true, ..Self::default() });
        }
        let Value::Metadata(changes) = value else { return None };
        Some(Self { is_cleared: false, changes })
    }

    fn apply(&self, metadata: &mut Metadata, _: Timestamp) {
        if self.is_cleared {
            metadata.clear();
        }
        for (name, value) in &self.changes {
            match value {
                Some(value) => drop(metadata.insert(name.clone(), value.clone())),
                None => drop(metadata.remove(name)),
            }
        }
    }

    fn value_of(metadata: &Metadata) -> Value {
        Value::Metadata(metadata.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect())
    }
}

/// What operators record about an account, in addition to its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountLabels {
    /// The operator's own id of the account, unique in the installation.
    pub external_id: Option<String>,
    pub metadata: Metadata,
    /// Why the account is suspended; `None` while it is active. Its members see it.
    pub suspended_reason: Option<String>,
}

/// A change of an account, or the settings of a new account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountPatch {
    pub name: Option<String>,
    pub external_id: Option<Option<String>>,
    pub metadata: MetadataPatch,
}

impl Patch for AccountPatch {
    type Field = AccountField;

    fn set(&mut self, field: AccountField, value: Value) -> bool {
        match field {
            AccountField::Name => keep(&mut self.name, value),
            AccountField::ExternalId => keep(&mut self.external_id, value),
            AccountField::Metadata => {
                let change = MetadataPatch::from_value(value);
                change.map(|change| self.metadata = change).is_some()
            }
        }
    }
}

/// The reason for a suspension.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspension {
    pub reason: String,
}

impl Patch for Suspension {
    type Field = SuspensionField;

    fn set(&mut self, field: SuspensionField, value: Value) -> bool {
        match field {
            SuspensionField::Reason => String::from_value(value).map(|reason| self.reason = reason).is_some(),
        }
    }
}

impl AccountLabels {
    /// Applies a change to the metadata. The external id has its own claim, so the store sets it.
    #[must_use]
    pub fn with(mut self, change: &MetadataPatch, now: Timestamp) -> Self {
        change.apply(&mut self.metadata, now);
        self
    }

    /// Lists the settings that differ from `before`, an earlier state.
    pub fn changes_since(&self, before: &Self) -> Vec<Change> {
        let external_ids = [before, self].map(|labels| labels.external_id.to_value());
        let metadata = [before, self].map(|labels| MetadataPatch::value_of(&labels.metadata));
        let changes = [(AccountField::ExternalId, external_ids), (AccountField::Metadata, metadata)];
        let changes = changes.into_iter().filter(|(_, [before, after])| before != after);
        changes.map(|(field, [before, after])| Change::new(field.row().name, &before, &after)).collect()
    }
}

impl BoundsPatch {
    pub fn of_limit(limit: Option<NanoUsd>) -> Self {
        Self { limit: Some(limit), ..Self::default() }
    }

    /// Sets a bound. Returns `false` if the field is not a setting, or the value has another type.
    pub(crate) fn set(&mut self, bound: Bound, value: Value) -> bool {
        match bound {
            Bound::Limit => keep(&mut self.limit, value),
            Bound::Limits => {
                let limits: Option<Option<Vec<Limit>>> = Kept::from_value(value);
                self.windows = limits.map(Option::unwrap_or_default);
                self.windows.is_some()
            }
            Bound::LimitRaised => keep(&mut self.limit_raised, value),
            Bound::Models => keep(&mut self.models, value),
            Bound::RequestsPerMinute => keep(&mut self.requests_per_minute, value),
            Bound::TokensPerMinute => keep(&mut self.tokens_per_minute, value),
            Bound::MaxInFlight => keep(&mut self.max_in_flight, value),
            Bound::Used | Bound::LimitRemaining => false,
        }
    }
}

impl Budget {
    pub(crate) fn value(&self, bound: Bound, now: Timestamp) -> Value {
        let of = |read: fn(&Bounds) -> Value| self.bounds.as_deref().map_or(Value::Null, read);
        match bound {
            Bound::Limit => self.limit.to_value(),
            Bound::Used => self.used.to_value(),
            // Negative if the limit was lowered below the used amount or its raise has ended. The subtraction cannot
            // overflow, because both amounts are far from the limits of an i64.
            Bound::LimitRemaining => {
                self.limit_at(now).and_then(|limit| limit.checked_sub(self.used)).to_value()
            }
            Bound::LimitRaised => self.limit_raised(now).to_value(),
            Bound::Limits => self.limits(now).to_value(),
            Bound::Models => of(|bounds| bounds.models.to_value()),
            Bound::RequestsPerMinute => {
                of(|bounds| bounds.requests_per_minute.map(|rate| rate.per_minute).to_value())
            }
            Bound::TokensPerMinute => {
                of(|bounds| bounds.tokens_per_minute.map(|rate| rate.per_minute).to_value())
            }
            Bound::MaxInFlight => of(|bounds| bounds.max_in_flight.to_value()),
        }
    }

    /// Returns the bounds that are set, without what has been used and without raises.
    pub(crate) fn settings(&self) -> BoundsPatch {
        let bounds = self.bounds.as_deref().cloned().unwrap_or_default();
        let windows: Vec<_> =
            bounds.windows.iter().map(|window| Limit::new(window.amount, window.per)).collect();
        BoundsPatch {
            limit: self.limit.map(Some),
            limit_raised: None,
            windows: Some(windows).filter(|windows| !windows.is_empty()),
            models: bounds.models.map(Some),
            requests_per_minute: bounds.requests_per_minute.map(|rate| Some(rate.per_minute)),
            tokens_per_minute: bounds.tokens_per_minute.map(|rate| Some(rate.per_minute)),
            max_in_flight: bounds.max_in_flight.map(Some),
        }
    }

    fn limits(&self, now: Timestamp) -> Option<Vec<Limit>> {
        let windows = &self.bounds.as_deref()?.windows;
        let limit = |window: &crate::ledger::Window| {
            let (amount, window) = (window.amount_at(now), window.at(now));
            let remaining = amount.checked_sub(window.used).unwrap_or(NanoUsd::ZERO);
            let running = LimitWindow { used: window.used, remaining, resets_at: window.resets_at() };
            Limit { raised: window.raised, window: Some(running), ..Limit::new(window.amount, window.per) }
        };
        Some(windows.iter().map(limit).collect()).filter(|limits: &Vec<Limit>| !limits.is_empty())
    }
}

/// Stores a value if it has the right type, and returns whether it has.
pub(crate) fn keep<T: Kept>(place: &mut Option<T>, value: Value) -> bool {
    *place = T::from_value(value);
    place.is_some()
}

/// Returns whether the new raise allows no more than the raise before: neither a larger amount nor a longer time.
fn is_less_raised(before: Option<Raise>, after: Option<Raise>) -> bool {
    let is_no_more = |after: Raise| {
        before.is_some_and(|before| after.amount <= before.amount && after.until <= before.until)
    };
    after.is_none_or(is_no_more)
}

/// Returns whether a changed setting allows less than before. That is so if a bound or an expiry is lower or set for
/// the first time, if a list has only lost entries, if a raise is lower, shorter or removed, or if the key was
/// disabled. (Keys and groups have no other flag.)
pub(crate) fn is_lowered(before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Null, Value::Amount(_) | Value::Count(_) | Value::Time(_) | Value::Limits(_))
        | (Value::Raise(_), Value::Null) => true,
        (Value::Amount(before), Value::Amount(after)) => after <= before,
        (Value::Count(before), Value::Count(after)) => after <= before,
        (Value::Time(before), Value::Time(after)) => after <= before,
        (Value::Limits(before), Value::Limits(after)) => {
            let is_less = |before: &Limit, after: &Limit| {
                after.amount <= before.amount && is_less_raised(before.raised, after.raised)
            };
            before.iter().all(|old| after.iter().any(|new| new.per == old.per && is_less(old, new)))
        }
        (Value::Raise(before), Value::Raise(after)) => is_less_raised(Some(*before), Some(*after)),
        (Value::Flag(before), Value::Flag(after)) => !before && *after,
        (Value::Texts(before), Value::Texts(after)) => {
            after.len() <= before.len() && after.iter().all(|text| before.contains(text))
        }
        _ => false,
    }
}

/// Defines the patch of an object, and how each of its fields is read and changed. A setting is a line `Field = name:
/// Type, place;`. The line is under `merged` if changes are merged into the stored value.
macro_rules! fields {
    (
        $object:ident, $field:ident, $patch:ident
        settings { $($(#[$doc:meta])* $setting:ident = $name:ident: $type:ty, $($place:ident).+;)+ }
        merged { $($(#[$merged_doc:meta])* $merged:ident = $merged_name:ident: $merge:ty;)+ }
        answered($this:ident, $now:ident) { $($answered:ident = $value:expr;)+ }
    ) => {
        /// A change of settings, or the settings of a new object: outer `None` keeps a setting, inner `None` clears the
        /// setting.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $patch {
            $($(#[$doc])* pub $name: Option<$type>,)+
            pub bounds: $crate::ledger::BoundsPatch,
            $($(#[$merged_doc])* pub $merged_name: $merge,)+
        }

        impl $crate::settings::Patch for $patch {
            type Field = $field;

            fn set(&mut self, field: $field, value: Value) -> bool {
                match field {
                    $($field::$setting => $crate::settings::keep(&mut self.$name, value),)+
                    $field::Bound(bound) => self.bounds.set(bound, value),
                    $($field::$merged => {
                        let change = <$merge as $crate::settings::Merge>::from_value(value);
                        change.map(|change| self.$merged_name = change).is_some()
                    })+
                    $($field::$answered)|+ => false,
                }
            }
        }

        impl $object {
            /// Applies settings to the object.
            #[must_use]
            pub fn with(mut self, patch: &$patch, now: Timestamp) -> Self {
                $(if let Some(value) = &patch.$name {
                    self.$($place).+.clone_from(value);
                })+
                self.spend.budget.update(&patch.bounds, now);
                $($crate::settings::Merge::apply(&patch.$merged_name, &mut self.$merged_name, now);)+
                self
            }

            /// Lists the settings that differ from `before`, an earlier state of the object.
            pub(crate) fn changes_since(&self, before: &Self, now: Timestamp) -> Vec<$crate::event::Change> {
                let settings = <$field as shared::wire::Fields>::settings();
                let values = |field| (before.value(field, now).setting(), self.value(field, now).setting());
                let changes = settings.filter_map(|field| {
                    let (before, after) = values(field);
                    let name = shared::wire::Fields::row(field).name;
                    (before != after).then(|| $crate::event::Change::new(name, &before, &after))
                });
                changes.collect()
            }

            /// Returns whether all settings that differ from an earlier state allow less.
            pub fn only_lowers(&self, before: &Self, now: Timestamp) -> bool {
                let settings = <$field as shared::wire::Fields>::settings();
                let mut values =
                    settings.map(|field| (before.value(field, now).setting(), self.value(field, now).setting()));
                values.all(|(before, after)| before == after || $crate::settings::is_lowered(&before, &after))
            }

            pub fn value(&self, field: $field, now: Timestamp) -> Value {
                let ($this, $now) = (self, now);
                match field {
                    $($field::$setting => self.$($place).+.to_value(),)+
                    $field::Bound(bound) => self.spend.budget.value(bound, now),
                    $($field::$merged => <$merge as $crate::settings::Merge>::value_of(&self.$merged_name),)+
                    $($field::$answered => $value.to_value(),)+
                }
            }
        }
    };
}

pub(crate) use fields;

#[cfg(test)]
mod tests;
