use domain::settings::Patch;
use shared::{
    error::ApiError,
    json::{Object, parse_object},
    wire::Fields,
};

use crate::value::{self, settable, unknown};

/// Reads settings from JSON, for a new object or for changes to an existing one.
pub fn settings<P: Patch>(json: &[u8], is_new: bool) -> Result<P, ApiError> {
    settings_among(&parse_object(json)?, is_new)
}

/// Reads settings from the members of a JSON object.
pub fn settings_among<P: Patch>(members: &Object<'_>, is_new: bool) -> Result<P, ApiError> {
    let mut patch = P::default();
    for (name, raw) in members.iter() {
        let Some(field) = settable::<P::Field>(name, is_new) else {
            let names = P::Field::settings().map(Fields::row).filter(|row| is_new || !row.is_fixed);
            return Err(unknown("", name, names.map(|row| row.name)));
        };
        let value = value::read(name, field.row().kind, raw)?;
        if !patch.set(field, value) {
            tracing::error!(
                name,
                "a setting's value has a different type than its row in the table of fields"
            );
            return Err(ApiError::internal());
        }
    }
    for row in P::Field::settings().map(Fields::row).filter(|row| is_new && row.is_required) {
        value::member(members, row.name, row.name)?;
    }
    Ok(patch)
}
