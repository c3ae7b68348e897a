//! Fields of a key: the place of each setting, and the computation of each other field. Names, types, checks and descriptions
//! stand in `shared::wire`, with one row for each field.

use shared::{
    money::NanoUsd,
    time::Timestamp,
    wire::{Kept, KeyField, Value},
};

use super::ApiKey;

macro_rules! key_fields {
    (
        settings { $($(#[$doc:meta])* $setting:ident = $name:ident: $type:ty, $($place:ident).+;)+ }
        answered($key:ident, $now:ident) { $($answered:ident = $value:expr;)+ }
    ) => {
        /// A change to a key's settings, or the settings of a new key: outer `None` leaves a setting, inner `None` clears the
        /// setting.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct KeyPatch { $($(#[$doc])* pub $name: Option<$type>),+ }

        impl KeyPatch {
            /// Sets a field. Returns `false` where the field is no setting, or has values of another type.
            #[must_use]
            pub fn set(&mut self, field: KeyField, value: Value) -> bool {
                match field {
                    $(KeyField::$setting => {
                        self.$name = Kept::from_value(value);
                        self.$name.is_some()
                    })+
                    $(KeyField::$answered)|+ => false,
                }
            }
        }

        impl ApiKey {
            /// The key with the settings of the patch.
            #[must_use]
            pub fn with(mut self, patch: &KeyPatch) -> Self {
                $(if let Some(value) = &patch.$name {
                    self.$($place).+.clone_from(value);
                })+
                self
            }

            /// Value of a field at this time.
            pub fn value(&self, field: KeyField, $now: Timestamp) -> Value {
                let $key = self;
                match field {
                    $(KeyField::$setting => self.$($place).+.to_value(),)+
                    $(KeyField::$answered => $value.to_value(),)+
                }
            }
        }
    };
}

key_fields! {
    settings {
        /// A new label.
        Label = label: String, label;
        /// A new limit, or none.
        Limit = limit: Option<NanoUsd>, spend.budget.limit;
        /// A new expiry, or none.
        ExpiresAt = expires_at: Option<Timestamp>, spend.expires_at;
    }
    answered(key, now) {
        KeyHint = key.hint;
        Status = key.status(now).as_str().to_owned();
        Used = key.spend.budget.used;
        // Below zero where the limit was lowered below the used amount. Neither number is near the ends of an i64.
        LimitRemaining = key.spend.budget.limit.and_then(|limit| limit.checked_sub(key.spend.budget.used));
        CreatedAt = key.created_at;
        LastUsedAt = key.spend.last_used_at.map(Timestamp::to_whole_seconds);
        RevokedAt = key.spend.revoked_at;
    }
}

#[cfg(test)]
mod tests {
    use shared::{ids::KeyId, wire::Kind};

    use super::*;

    /// A value that requests may give to a field; `None` where no request sets the field.
    fn sample(field: KeyField) -> Option<Value> {
        match field.row().kind {
            Kind::Answered(_) => None,
            Kind::Line { .. } => Some(Value::Text("Customer A".into())),
            Kind::Amount => Some(Value::Amount(NanoUsd::from_usd(25))),
            Kind::Time => Some(Value::Time(Timestamp::from_millis(1))),
        }
    }

    #[test]
    fn each_setting_is_kept_where_it_is_read_and_no_other_field_can_be_set() {
        let now = Timestamp::from_millis(1_000);
        let blank = ApiKey {
            id: KeyId::new(now, [0; 10]),
            label: String::new(),
            hint: "fg_api_3kF9…b8r9".into(),
            created_at: now,
            spend: crate::ledger::Key::default(),
        };
        for field in KeyField::ALL {
            let mut patch = KeyPatch::default();
            let Some(value) = sample(*field) else {
                assert!(!patch.set(*field, blank.value(*field, now)), "{field:?}");
                continue;
            };
            assert!(patch.set(*field, value.clone()), "{field:?}");
            let changed = blank.clone().with(&patch);
            assert_eq!(changed.value(*field, now), value);
            let depends = |other: &&KeyField| other.row().is_setting() && *other != field;
            for other in KeyField::ALL.iter().filter(depends) {
                assert_eq!(changed.value(*other, now), blank.value(*other, now), "{field:?} {other:?}");
            }
        }
    }
}
