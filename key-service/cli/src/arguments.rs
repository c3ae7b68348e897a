//! Values of flags, and the operator who runs the command.

use shared::{money::NanoUsd, text::is_name, time::Timestamp};

use domain::event::Actor;

/// Maximum length of a name, so that it fits on a line of a listing.
const MAX_NAME_CHARS: usize = 80;

/// Names the operator after the user who runs the command, if the environment says who that is.
pub(crate) fn operator() -> Actor {
    let user = ["SUDO_USER", "USER"].into_iter().find_map(|variable| std::env::var(variable).ok());
    let user = user.and_then(|user| name(&user).ok());
    Actor::Operator { name: user.unwrap_or_else(|| "operator".to_owned()) }
}

/// Parses the name of an account, a management key, a member or a group. Refuses invisible characters, so that no name
/// can imitate another.
pub(crate) fn name(text: &str) -> Result<String, String> {
    if !is_name(text, MAX_NAME_CHARS) {
        return Err(format!("must be 1 to {MAX_NAME_CHARS} visible characters, without spaces around them"));
    }
    Ok(text.to_owned())
}

pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).ok_or_else(|| "must be a date and a time, such as 2027-12-31T23:59:59Z".to_owned())
}

pub(crate) fn amount(text: &str) -> Result<NanoUsd, String> {
    usd(text, NanoUsd::from_nanos(1))
}

pub(crate) fn usd(text: &str, least: NanoUsd) -> Result<NanoUsd, String> {
    match NanoUsd::parse(text) {
        Ok(amount) if (least..=NanoUsd::MAX).contains(&amount) => Ok(amount),
        Ok(_) => Err(format!("must be {least} to {} USD", NanoUsd::MAX)),
        Err(e) => Err(e.to_string()),
    }
}
