//! Access to an upstream: the headers of every request, private certificate authorities, and a proxy.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    path::PathBuf,
};

use http::{HeaderName, HeaderValue, Uri, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use toml::Spanned;

use crate::table::Fault;

/// Header that names the version of the Messages API.
pub const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");
/// Version of the Messages API in which the gateway writes its requests.
const WRITTEN_VERSION: &str = "2023-06-01";

/// Headers that describe the connection, the body or the trace. A catalogue cannot set them.
const OWN_HEADERS: [&str; 7] =
    ["host", "connection", "content-length", "content-type", "transfer-encoding", "expect", "traceparent"];

/// How to reach an upstream, in addition to its address.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Headers that every request carries, including the one with the credential.
    pub headers: Vec<Header>,
    /// PEM file of certificate authorities to trust in addition to the public ones.
    pub ca_file: Option<PathBuf>,
    /// URL of an HTTP proxy through which connections are tunnelled. It may contain a password.
    pub proxy: Option<SecretString>,
}

/// A header that every request to an upstream carries.
#[derive(Clone, Debug)]
pub struct Header {
    pub name: HeaderName,
    /// Text that precedes the secret in the value, such as `Bearer `.
    pub prefix: &'static str,
    /// Where the rest of the value comes from.
    pub source: Source,
}

#[derive(Clone, Debug)]
pub enum Source {
    /// A text in the catalogue.
    Text(SecretString),
    Variable(String),
    /// A file. White space around its content is removed.
    File(PathBuf),
}

/// Names the source without showing the value.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(_) => f.write_str("a text in the catalogue"),
            Self::Variable(name) => write!(f, "the environment variable {name}"),
            Self::File(path) => write!(f, "the file {}", path.display()),
        }
    }
}

impl Access {
    /// Adds the header with [`WRITTEN_VERSION`], unless the catalogue sets that header.
    pub(super) fn name_version_of_messages(&mut self) {
        let name = ANTHROPIC_VERSION;
        if self.headers.iter().all(|header| header.name != name) {
            let source = Source::Text(WRITTEN_VERSION.into());
            self.headers.push(Header { name, prefix: "", source });
        }
    }
}

/// Members of `[[model.upstream]]` that describe how to reach the upstream.
pub(super) struct RawAccess {
    pub(super) api_key_env: Option<String>,
    pub(super) api_key_file: Option<Spanned<PathBuf>>,
    pub(super) auth: Option<Spanned<String>>,
    pub(super) headers: Option<Spanned<BTreeMap<String, RawSource>>>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) proxy: Option<Spanned<String>>,
}

/// A header's value as the catalogue writes it.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a header is a text, { env = \"VARIABLE\" } or { file = \"PATH\" }")]
pub(super) enum RawSource {
    Text(String),
    Variable(VariableSource),
    File(FileSource),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VariableSource {
    env: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSource {
    file: PathBuf,
}

impl RawAccess {
    /// Checks the members. Unless `auth` names the header that carries the credential, `usual_auth` does.
    pub(super) fn check(self, usual_auth: &str) -> Result<Access, Fault> {
        let mut headers = Vec::new();
        let credential = match (self.api_key_env, self.api_key_file) {
            (Some(_), Some(file)) => {
                return Err((Some(file.span()), "set api_key_env or api_key_file, not both".into()));
            }
            (Some(variable), None) => Some(Source::Variable(variable)),
            (None, Some(file)) => Some(Source::File(file.into_inner())),
            (None, None) => None,
        };
        match (credential, self.auth) {
            (Some(source), auth) => headers.push(credential_header(source, auth, usual_auth)?),
            (None, Some(auth)) => {
                let reason = "`auth` needs a credential; set api_key_env or api_key_file";
                return Err((Some(auth.span()), reason.to_owned()));
            }
            (None, None) => {}
        }
        if let Some(further) = self.headers {
            let at = further.span();
            for (name, source) in further.into_inner() {
                headers.push(further_header(&name, source).map_err(|reason| (Some(at.clone()), reason))?);
            }
            let mut names = HashSet::new();
            if let Some(twice) = headers.iter().find(|header| !names.insert(header.name.clone())) {
                return Err((Some(at), format!("the header \"{}\" is set twice", twice.name)));
            }
        }
        let proxy = self.proxy.map(proxy).transpose()?;
        Ok(Access { headers, ca_file: self.ca_file, proxy })
    }
}

/// Returns the header that carries a credential. `bearer` means `Authorization`.
fn credential_header(
    source: Source,
    auth: Option<Spanned<String>>,
    usual_auth: &str,
) -> Result<Header, Fault> {
    let at = auth.as_ref().map(Spanned::span);
    let auth = auth.map_or_else(|| usual_auth.to_owned(), Spanned::into_inner);
    if auth == "bearer" {
        return Ok(Header { name: header::AUTHORIZATION, prefix: "Bearer ", source });
    }
    let name = header_name(&auth).map_err(|reason| (at, reason))?;
    Ok(Header { name, prefix: "", source })
}

fn further_header(name: &str, source: RawSource) -> Result<Header, String> {
    let name = header_name(name)?;
    let source = match source {
        RawSource::Text(text) if HeaderValue::from_str(&text).is_err() => {
            return Err(format!("the value of header \"{name}\" has characters that a header cannot carry"));
        }
        RawSource::Text(text) => Source::Text(text.into()),
        RawSource::Variable(VariableSource { env }) => Source::Variable(env),
        RawSource::File(FileSource { file }) => Source::File(file),
    };
    Ok(Header { name, prefix: "", source })
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    let parsed = HeaderName::try_from(name).map_err(|_| format!("\"{name}\" is not a valid header name"))?;
    if OWN_HEADERS.contains(&parsed.as_str()) {
        return Err(format!("the gateway sets the header \"{parsed}\" itself; remove it"));
    }
    Ok(parsed)
}

/// Checks a proxy's URL. Errors do not show its password.
fn proxy(url: Spanned<String>) -> Result<SecretString, Fault> {
    let (at, url) = (url.span(), SecretString::from(url.into_inner()));
    let parsed = url.expose_secret().parse::<Uri>().ok();
    let is_http = |uri: &Uri| {
        uri.scheme_str() == Some("http") && uri.host().is_some() && uri.path() == "/" && uri.query().is_none()
    };
    if parsed.as_ref().is_some_and(is_http) {
        return Ok(url);
    }
    Err((Some(at), "a proxy must be an address such as http://proxy.internal:3128".into()))
}
