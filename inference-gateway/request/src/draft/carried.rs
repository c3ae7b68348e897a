//! Parts of earlier answers that clients send back, for the next turn of the server that made them.

use raw_json::{ANY_NUMBER, Members, Value};
use reply::carried::{self, CarriedPart, PlacedPart, ReasoningDetail, ServerId};
use shared::{error::ApiError, json::Kind};

/// Member of an earlier answer in the draft that lists the carried parts. No server gets it.
pub(crate) const CARRIED: &str = "carried";
/// Type of the `reasoning_details` elements in which chat clients send the parts back.
const ENCRYPTED: &str = "reasoning.encrypted";

/// Reads the parts of an earlier answer that match `wanted` by server and kind, in the order of its calls.
pub(crate) fn parts_of(
    message: &Members<'_, '_>,
    wants: impl Fn(ServerId, &CarriedPart) -> bool,
) -> Vec<PlacedPart> {
    let mut found = Vec::new();
    let Some(list) = message.get(CARRIED) else { return found };
    let read = list.each_if_any(ANY_NUMBER, |text| {
        if let Some((server, parts)) = carried::read(&text.string()?) {
            let room = carried::MOST_PARTS - found.len();
            found.extend(parts.into_iter().filter(|PlacedPart(_, part)| wants(server, part)).take(room));
        }
        Ok(())
    });
    found.sort_by_key(|PlacedPart(place, _)| *place);
    if read.is_ok() { found } else { Vec::new() }
}

/// Returns the parts before the call at this index. `parts` are in the order of calls.
pub(crate) fn parts_at(parts: &[PlacedPart], place: u64) -> impl Iterator<Item = &CarriedPart> {
    let from = parts.partition_point(|PlacedPart(at, _)| *at < place);
    parts[from..].iter().take_while(move |PlacedPart(at, _)| *at == place).map(|PlacedPart(_, part)| part)
}

/// Reads the parts next to an answer that a chat client sent back: the gateway's string, or the vendor's own list.
pub(crate) fn of_details(details: &Value<'_, '_>, take: &mut dyn FnMut(String)) -> Result<(), ApiError> {
    if details.kind() != Kind::Array {
        return Ok(());
    }
    let mut raw = Vec::new();
    details.each_if_any(ANY_NUMBER, |detail| {
        let Ok(read) = serde_json::from_str::<ReasoningDetail>(detail.raw()) else { return Ok(()) };
        match &read.data {
            Some(data) if read.kind == ENCRYPTED && carried::is_carried(data) => {
                // A truncated string cannot be used.
                if carried::read(data).is_some() {
                    take(data.clone());
                }
            }
            Some(_) | None => raw.push(PlacedPart(0, CarriedPart::Detail(read))),
        }
        Ok(())
    })?;
    if !raw.is_empty() {
        take(carried::carry(ServerId::ANY, &raw));
    }
    Ok(())
}

/// Reads the signature next to a call or a text: the gateway's string, or the vendor's own form.
pub(crate) fn of_extra(extra: &Value<'_, '_>, call: Option<u64>, take: &mut dyn FnMut(String)) {
    let Some(signature) = carried::google_signature(extra.raw()) else { return };
    let parts = match (carried::read(&signature), call) {
        // The client may have dropped calls before this one.
        (Some((server, mut parts)), Some(call)) => {
            for PlacedPart(at, _) in &mut parts {
                *at = call;
            }
            return take(carried::carry(server, &parts));
        }
        (Some(_), None) => return take(signature),
        (None, _) if carried::is_carried(&signature) => return,
        (None, Some(call)) => PlacedPart(call, CarriedPart::CallSignature { signature }),
        (None, None) => PlacedPart(0, CarriedPart::TextSignature { signature }),
    };
    take(carried::carry(ServerId::ANY, &[parts]));
}
