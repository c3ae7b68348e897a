//! Settings of an object, read from JSON.

use domain::settings::Patch;
use shared::{
    error::{ApiError, Code},
    json::{Object, RawValue, parse_object},
    wire::Fields,
};

use crate::value::{self, settable, unknown};

/// Reads settings from JSON, of a new object or of a change.
pub fn settings<P: Patch>(json: &[u8], is_new: bool) -> Result<P, ApiError> {
    let object = parse_object(json)?;
    let patch = settings_among(object.iter(), is_new)?;
    if is_new {
        require::<P::Field>(&object)?;
    }
    Ok(patch)
}

/// Reads settings from members of an object.
pub fn settings_among<'a, P: Patch>(
    members: impl Iterator<Item = (&'a str, &'a RawValue)>,
    is_new: bool,
) -> Result<P, ApiError> {
    let mut patch = P::default();
    for (name, raw) in members {
        let Some(field) = settable::<P::Field>(name, is_new) else {
            let names = P::Field::settings().map(Fields::row).filter(|row| is_new || !row.is_fixed);
            return Err(unknown("", name, names.map(|row| row.name)));
        };
        if !patch.set(field, value::read(name, field.row().kind, raw)?) {
            tracing::error!(name, "a setting's value has another type than its row says");
            return Err(ApiError::internal());
        }
    }
    Ok(patch)
}

/// Refuses an object without a field that a new one needs.
fn require<F: Fields>(object: &Object<'_>) -> Result<(), ApiError> {
    let required = F::settings().map(Fields::row).filter(|row| row.is_required);
    match required.map(|row| row.name).find(|name| object.get(name).is_none()) {
        None => Ok(()),
        Some(name) => {
            let message = format!("`{name}` is missing.");
            Err(ApiError::at(Code::MissingRequiredParameter, name, message))
        }
    }
}
