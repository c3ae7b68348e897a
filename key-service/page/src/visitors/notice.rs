//! A notice: a sentence about what an action did, shown on the page that the action redirects to.
//!
//! A cookie carries it, sealed by the session. If it were in the address, anyone could forge it.

use axum::response::{IntoResponse, Redirect, Response};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::header;
use shared::secret::same;

use super::person::Person;
use crate::form::Fields;
use key_service_management::members::Token;

/// Maximum length in characters, well below the capacity of a cookie.
const MAX_LINE_CHARS: usize = 300;

/// Maximum length of a form that a notice contains for undoing the action, in bytes. A cookie has room for about 4,000.
const MAX_UNDO: usize = 1_400;
/// Separates the sentence from the form, and the form's address from its fields.
const SEPARATOR: char = '\0';

/// What an action did, and how to undo it.
pub(crate) struct Notice {
    pub(crate) line: String,
    pub(crate) undo: Option<Undo>,
}

/// A form that undoes an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// Path to which the form is sent.
    pub path: String,
    pub fields: Fields,
}

/// Redirects to a page that shows the notice once.
pub fn done(person: &impl Person, path: &str, line: &str) -> Response {
    done_undoably(person, path, line, None)
}

/// Redirects to a page that shows the notice once, with a button that undoes the action. If the form is too long for a
/// cookie, there is no button.
pub fn done_undoably(person: &impl Person, path: &str, line: &str, undo: Option<Undo>) -> Response {
    let mut line: String = line.chars().take(MAX_LINE_CHARS).collect::<String>() + cut_mark(line);
    if let Some(Undo { path, fields }) = undo {
        let form = format!("{SEPARATOR}{path}{SEPARATOR}{}", fields.query());
        if form.len() <= MAX_UNDO {
            line.push_str(&form);
        }
    }
    let cookie = person.browser().notice_cookie(&sealed(person.token(), &line));
    ([(header::SET_COOKIE, cookie)], Redirect::to(path)).into_response()
}

fn cut_mark(line: &str) -> &'static str {
    if line.chars().nth(MAX_LINE_CHARS).is_some() { "…" } else { "" }
}

/// Returns the notice that this session left, if any.
pub(crate) fn of(person: &impl Person) -> Option<Notice> {
    opened(person.token(), person.browser().notice.as_deref()?).map(|text| read(&text))
}

fn read(text: &str) -> Notice {
    let mut parts = text.split(SEPARATOR);
    let line = parts.next().unwrap_or_default().to_owned();
    let undo = parts.next().zip(parts.next());
    let undo =
        undo.map(|(path, query)| Undo { path: path.to_owned(), fields: Fields::of_query(Some(query)) });
    Notice { line, undo }
}

fn sealed(token: &Token, line: &str) -> String {
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
    }

    #[test]
    fn the_longest_notice_fits_into_a_cookie() {
        let longest = "🦀".repeat(MAX_LINE_CHARS) + &"x".repeat(MAX_UNDO);
        let cookie = sealed(&token("a"), &longest);
        assert!(cookie.len() < 3_800, "{}", cookie.len());
    }

    #[test]
    fn a_notice_takes_a_form_along_that_undoes_the_action() {
        let fields = Fields::of([("label", "a&b".to_owned()), ("shown", "label=c".to_owned())]);
        let text = format!("Saved.{SEPARATOR}/dashboard/keys/1{SEPARATOR}{}", fields.query());
        let Notice { line, undo } = read(&text);
        let path = "/dashboard/keys/1".to_owned();
        assert_eq!((line.as_str(), undo), ("Saved.", Some(Undo { path, fields })));
        assert!(read("Saved.").undo.is_none());
    }
}
