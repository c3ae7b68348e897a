//! Reads forms and queries as browsers send them.

use std::str::FromStr;

use axum::{body::Body, extract::Request};
use http::{HeaderMap, header};
use shared::error::Code;
use shared_door::http::read_body;

use crate::{failure::Failure, site::zone::Zone};

/// Address of a page, from which links with the same query are made.
#[derive(Clone, Copy)]
pub struct PageAddress<'a> {
    pub path: &'a str,
    pub query: &'a Fields,
}

/// Maximum size of a form in bytes. Real forms have a few kilobytes at most.
const MAX_FORM: usize = 64 << 10;

/// Query fields that choose which days a page covers and which days to compare them with.
pub const RANGE_FIELDS: [&str; 4] = ["range", "from", "to", "against"];

/// Field whose value is the name of another field with a time in the reader's zone, followed by the time in UTC that
/// this other field showed.
pub(crate) const ASKED_TIME: &str = "asked-time";

const FORM: &str = "application/x-www-form-urlencoded";

/// The fields of a form or a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    pub fn of(fields: impl IntoIterator<Item = (impl Into<String>, String)>) -> Self {
        Self(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    pub fn of_query(query: Option<&str>) -> Self {
        Self(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// Reads the body of a form.
    pub(crate) async fn of_form(headers: &HeaderMap, body: Body) -> Result<Self, Failure> {
        let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_form = content_type.is_some_and(|value| value.split(';').next().map(str::trim) == Some(FORM));
        if !is_form {
            return Err(Failure::BadRequest(
                "This form did not come from a page of this site. Open the page again and retry.".into(),
            ));
        }
        let bytes = read_body(headers, body, MAX_FORM).await.map_err(|error| match error.code {
            Code::RequestTooLarge => Failure::BadRequest("The form is too large.".into()),
            _ => Failure::BadRequest("The form did not arrive completely. Send it again.".into()),
        })?;
        Ok(Self(form_urlencoded::parse(&bytes).into_owned().collect()))
    }

    /// Writes the fields as a query string.
    pub fn query(&self) -> String {
        form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.0).finish()
    }

    #[must_use]
    pub fn with(self, name: &str, value: String) -> Self {
        self.replaced_by(Self::of([(name, value)]))
    }

    /// Adds other fields. They replace the fields that have the same name.
    #[must_use]
    pub fn replaced_by(mut self, others: Self) -> Self {
        self.0.retain(|(name, _)| !others.has(name));
        self.0.extend(others.0);
        self
    }

    /// Returns the fields without those that have these names.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        Self(self.0.iter().filter(|(name, _)| !names.contains(&name.as_str())).cloned().collect())
    }

    /// Returns only the fields that have one of these names and are not empty.
    #[must_use]
    pub fn only(&self, names: &[&str]) -> Self {
        let is_wanted =
            |(name, value): &&(String, String)| names.contains(&name.as_str()) && !value.is_empty();
        Self(self.0.iter().filter(is_wanted).cloned().collect())
    }

    /// Converts to UTC the times that the form asked for in the reader's zone. A time that was not changed stays exact.
    pub(crate) fn in_utc(self, zone: &Zone) -> Self {
        let asked: Vec<(String, String)> = self
            .all(ASKED_TIME)
            .iter()
            .filter_map(|asked| {
                let (name, utc) = asked.split_once(' ')?;
                let text = self.get(name);
                let utc = if text == zone.from_utc(utc) { utc.to_owned() } else { zone.to_utc(text) };
                Some((name.to_owned(), utc))
            })
            .collect();
        let form = self.without(&[ASKED_TIME]);
        form.replaced_by(Self(asked))
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns whether there is a field with this name, even an empty field.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(named, _)| named == name)
    }

    /// Returns a field; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(named, _)| named == name).map_or("", |(_, value)| value.as_str())
    }

    /// Returns all values of a field that repeats.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(named, _)| named == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Returns the form's idempotency key: 64 hexadecimal digits that the page put into the form. If the form is sent
    /// again, it has the same key.
    pub fn attempt(&self) -> Result<&str, Failure> {
        let attempt = self.get("attempt");
        let is_ours = attempt.len() == 64 && attempt.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_ours {
            Ok(attempt)
        } else {
            Err(Failure::BadRequest(
                "This form did not come from a page of this site. Open the page again and retry.".into(),
            ))
        }
    }

    /// Returns a field without the blanks around it; `None` if nothing is left.
    pub fn filled(&self, name: &str) -> Option<&str> {
        Some(self.get(name).trim()).filter(|value| !value.is_empty())
    }

    /// Reads the id in a field, if it is filled. A malformed id counts as an unknown object.
    pub fn id<I: FromStr>(&self, name: &str) -> Result<Option<I>, Failure> {
        self.filled(name).map(str::parse).transpose().map_err(|_| Failure::NotFound)
    }
}

pub fn query(request: &Request) -> Fields {
    Fields::of_query(request.uri().query())
}

/// Returns the query string with one field replaced. Empty fields are left out.
pub fn with(Fields(fields): &Fields, name: &str, value: &str) -> String {
    let others = fields.iter().filter(|(named, value)| named != name && !value.is_empty());
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(others);
    if !value.is_empty() {
        query.append_pair(name, value);
    }
    query.finish()
}
