//! The theme that a reader chose: light, dark, or the system's.

use crate::site::destination::Destination;

/// Stored in a cookie, so each browser has its own theme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    System,
    Light,
    Dark,
}

shared::names! { Theme: System = "system", Light = "light", Dark = "dark" }

/// Returns the page to go back to after choosing a theme. For a page below an object or a list, this is the object or
/// the list, since the page itself may be the answer to a form and cannot be loaded again.
pub(crate) fn place_of_choice(referer: &str, base: &str, home: &str) -> String {
    let place = referer.strip_prefix(base).and_then(|address| Destination::below(home, address));
    let Some(place) = place else { return home.to_owned() };
    let path = place.as_str().split('?').next().unwrap_or_default();
    let mut parts = path.strip_prefix(home).unwrap_or_default().split('/').skip(1);
    match (parts.next(), parts.next()) {
        (Some(part), Some(id)) if id.contains('_') || id == "new" => format!("{home}/{part}/{id}"),
        (Some(part), Some(_)) => format!("{home}/{part}"),
        (Some(_) | None, _) => place.as_str().to_owned(),
    }
}
