//! Colours of the pages, as the reader chose them.

use http::{HeaderMap, header};

use crate::site::destination::Destination;

/// Colours that a browser asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    System,
    Light,
    Dark,
}

shared::names! { Theme: System = "system", Light = "light", Dark = "dark" }

/// Returns the address of the page that a form was on: that of an object, or of a part of the pages below `home`. A page that
/// asks first leads to its object. A page made by a form has no address.
pub(crate) fn place_of_choice(headers: &HeaderMap, base: &str, home: &str) -> String {
    let referer = headers.get(header::REFERER).and_then(|value| value.to_str().ok());
    let place = referer.and_then(|address| Destination::below(home, address.strip_prefix(base)?));
    let Some(place) = place else { return home.to_owned() };
    let path = place.as_str().split('?').next().unwrap_or_default();
    let mut parts = path.strip_prefix(home).unwrap_or_default().split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some(part), Some(id)) if id.contains('_') || id == "new" => format!("{home}/{part}/{id}"),
        (Some(part), Some(_)) => format!("{home}/{part}"),
        (Some(_) | None, _) => place.as_str().to_owned(),
    }
}
