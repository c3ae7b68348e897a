//! Keys that suddenly spend many times more than usual, each in a sentence.

use maud::{Markup, html};

use domain::usage::Jump;
use key_service_management::{jumps::SpendJump, reach::AccountReach};
use key_service_page::{
    app::App,
    failure::Failure,
    paths::{ACTIVITY, KEYS},
    show::{glance, or_unnamed},
};

/// Lists the keys that suddenly spend more than usual; nothing if there are none.
pub(super) async fn sentences(app: &App, reach: AccountReach) -> Result<Markup, Failure> {
    let jumps = app.management.spend_jumps(reach.account).await?;
    let keys = app.management.keys_by_id(reach, jumps.iter().map(|of| of.key).collect()).await?;
    Ok(html! {
        @for SpendJump { key, jump } in &jumps {
            @if let Some(found) = keys.get(key) {
                p.note.jump {
                    a href={ (KEYS) "/" (key.to_string()) } { (or_unnamed(&found.label)) }
                    " spent " (glance(jump.spent)) " in the last " (time(jump)) ", " (compared(jump)) ". "
                    a href={ (ACTIVITY) "?key=" (key.to_string()) } { "See its requests" }
                }
            }
        }
    })
}

fn time(jump: &Jump) -> String {
    match jump.minutes {
        60 => "hour".into(),
        minutes => format!("{minutes} minutes"),
    }
}

fn compared(jump: &Jump) -> String {
    match jump.times {
        Some(times) => format!("{times} times its usual"),
        None => "and hardly anything before".into(),
    }
}

#[cfg(test)]
mod tests {
    use shared::money::NanoUsd;

    use super::*;

    #[test]
    fn a_jump_is_said_in_plain_words() {
        let jump = Jump { spent: NanoUsd::from_usd(2), minutes: 60, times: Some(40) };
        assert_eq!((time(&jump), compared(&jump)), ("hour".into(), "40 times its usual".into()));
        let new = Jump { minutes: 95, times: None, ..jump };
        assert_eq!((time(&new), compared(&new)), ("95 minutes".into(), "and hardly anything before".into()));
    }
}
