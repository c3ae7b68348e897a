//! Keys as JSON lines.

use std::io::BufRead;

use shared::{
    error::{ApiError, Code},
    json::{Object, parse_object},
    money::NanoUsd,
    wire::{Bound, Fields as _, GroupField, Kept, KeyField, Kind},
};

use domain::{digest::ForeignKey, key::KeyPatch};
use key_service_moving::{Draft, DraftKey, Wrong};
use key_service_objects::{settings_among, value};

/// Members of a line that are not key settings.
const SHA256: &str = "sha256";
const USED: &str = "used";
const GROUP: &str = "group_external_id";

/// Reads keys, or lists the faulty lines. Stops at a line that cannot be read.
pub(crate) fn read(lines: impl BufRead, file: &str) -> Result<Draft, Vec<Wrong>> {
    let (mut draft, mut wrong) = (Draft::default(), Vec::new());
    for (number, line) in (1..).zip(lines.split(b'\n')) {
        let place = format!("{file} line {number}");
        let line = match line {
            Ok(line) if line.trim_ascii().is_empty() => continue,
            Ok(line) => line,
            Err(error) => return Err(vec![Wrong { place, reason: format!("cannot be read: {error}") }]),
        };
        match key(place.clone(), &line) {
            Ok(key) => draft.keys.push(key),
            Err(error) => wrong.push(Wrong { place, reason: error.message.into_owned() }),
        }
    }
    wrong.extend(draft.repeated());
    if wrong.is_empty() { Ok(draft) } else { Err(wrong) }
}

fn key(place: String, line: &[u8]) -> Result<DraftKey, ApiError> {
    let members = parse_object(line)?;
    let sha256: Option<String> = member(&members, SHA256, Kind::Line { max: 64 })?;
    let foreign = sha256.as_deref().and_then(ForeignKey::from_hex);
    let foreign = foreign.ok_or_else(|| invalid(SHA256, "must be a SHA-256 in 64 hexadecimal digits"))?;
    let used = member::<Option<NanoUsd>>(&members, USED, Kind::Amount)?.flatten();
    let group = member::<Option<String>>(&members, GROUP, GroupField::ExternalId.row().kind)?.flatten();
    if members.get(KeyField::GroupId.row().name).is_some() {
        return Err(invalid(KeyField::GroupId.row().name, "cannot be set; `group_external_id` can"));
    }
    let settings: KeyPatch = settings_among(&members.without(&[SHA256, USED, GROUP]), true)?;
    if settings.bounds.raises_any() {
        // A raise is refused, because once it has ended, the same file could no longer be imported.
        return Err(invalid(
            KeyField::Bound(Bound::LimitRaised).row().name,
            "cannot be imported; raise limits afterwards",
        ));
    }
    Ok(DraftKey {
        place,
        foreign,
        hint: None,
        is_revoked: false,
        used: used.unwrap_or(NanoUsd::ZERO),
        settings,
        group,
    })
}

/// Reads this member of the object; `None` if the object lacks it.
fn member<T: Kept>(members: &Object<'_>, name: &str, kind: Kind) -> Result<Option<T>, ApiError> {
    let Some(raw) = members.get(name) else { return Ok(None) };
    T::from_value(value::read(name, kind, raw)?).map(Some).ok_or_else(ApiError::internal)
}

fn invalid(name: &str, reason: &str) -> ApiError {
    ApiError::at(Code::InvalidValue, name, format!("`{name}` {reason}."))
}
