//! A notice: a sentence about what an action did, shown on the page that the action redirects to.
//!
//! A cookie carries it, sealed by the session. If it were in the address, anyone could forge it.

use axum::response::{IntoResponse, Redirect, Response};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::header;
use shared::secret::same;

use super::person::Person;
use key_service_management::members::Token;

/// Maximum length in characters, well below the capacity of a cookie.
const MAX_LINE_CHARS: usize = 300;

/// Redirects to a page that shows the notice once.
pub fn done(person: &impl Person, path: &str, line: &str) -> Response {
    let cookie = person.browser().notice_cookie(&sealed(person.token(), line));
    ([(header::SET_COOKIE, cookie)], Redirect::to(path)).into_response()
}

/// Returns the notice that this session left, if any.
pub(crate) fn line(person: &impl Person) -> Option<String> {
    opened(person.token(), person.browser().notice.as_deref()?)
}

fn sealed(token: &Token, line: &str) -> String {
    let line = match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    };
    let text = URL_SAFE_NO_PAD.encode(line);
    format!("{text}.{}", seal(token, &text))
}

fn opened(token: &Token, cookie: &str) -> Option<String> {
    let (text, presented) = cookie.split_once('.')?;
    let is_ours = same(&seal(token, text), presented);
    is_ours.then(|| String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok())?
}

fn seal(token: &Token, text: &str) -> String {
    hex::encode(token.digest(&format!("notice {text}")).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::parse(&URL_SAFE_NO_PAD.encode(text.repeat(48))).unwrap()
    }

    #[test]
    fn a_line_is_read_in_the_session_that_wrote_it_alone() {
        let (ours, other) = (token("a"), token("b"));
        let cookie = sealed(&ours, "Saved. Limit: $25.00 → $5.00");
        assert_eq!(opened(&ours, &cookie).as_deref(), Some("Saved. Limit: $25.00 → $5.00"));
        assert_eq!(opened(&other, &cookie), None);
        let (_, seal) = cookie.split_once('.').unwrap();
        let forged = format!("{}.{seal}", URL_SAFE_NO_PAD.encode("You won"));
        for forged in [forged.as_str(), "", ".", "x.y", seal] {
            assert_eq!(opened(&ours, forged), None, "{forged}");
        }
        let long = sealed(&ours, &"🦀".repeat(5_000));
        assert!(long.len() < 2_000 && opened(&ours, &long).unwrap().ends_with('…'), "it fits into a cookie");
    }
}
