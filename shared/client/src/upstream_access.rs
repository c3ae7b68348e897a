//! Access to upstreams as the catalogue describes it: values of headers, private authorities and proxies.

use std::{env, time::Duration};

use http::{HeaderName, HeaderValue, Uri};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use shared::secret::{self, ExposeSecret, SecretString};
use shared_catalog::{Access, Header, Source};
use shared_config::{ConfigError, Pem};

use crate::connection::{Connector, connector};

const MODELS: &str = "FAREGATE_MODELS";

/// Reads the values of all headers from their sources.
pub fn header_values(access: &Access) -> Result<Box<[(HeaderName, HeaderValue)]>, ConfigError> {
    let named = |header: &Header| Ok((header.name.clone(), value(header)?));
    access.headers.iter().map(named).collect()
}

fn value(header: &Header) -> Result<HeaderValue, ConfigError> {
    let Header { name, prefix, source } = header;
    let error = |reason: String| ConfigError::new(MODELS, format!("header \"{name}\": {source} {reason}"));
    let text: SecretString = match source {
        Source::Text(text) => text.clone(),
        Source::Variable(variable) => env::var(variable).map_err(|_| error("is not set".into()))?.into(),
        Source::File(path) => secret::read_file(path).map_err(|e| error(format!("cannot be read: {e}")))?,
    };
    let text = text.expose_secret().trim();
    if text.is_empty() {
        return Err(error("is empty".into()));
    }
    let value = SecretString::from(format!("{prefix}{text}"));
    let mut value = HeaderValue::from_str(value.expose_secret())
        .map_err(|_| error("has characters that a header cannot carry".into()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Makes the connector of an upstream at `base`, which connects within `deadline`.
pub fn upstream_connector(base: &Uri, access: &Access, deadline: Duration) -> Result<Connector, ConfigError> {
    let tls = access.ca_file.as_deref().map(|file| trusting(&Pem::read(MODELS, file)?)).transpose()?;
    Ok(connector(deadline, tls, proxy(base, access)?.as_ref()))
}

/// Trusts the authorities of a file in addition to the public ones.
fn trusting(authorities: &Pem) -> Result<ClientConfig, ConfigError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for authority in CertificateDer::pem_slice_iter(authorities.text().as_bytes()) {
        let authority = authority.map_err(|e| authorities.refused(e))?;
        roots.add(authority).map_err(|e| authorities.refused(e))?;
    }
    let versions = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .map_err(|e| authorities.refused(e))?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the proxy of an upstream: the catalogue's or, for https, the environment's.
fn proxy(base: &Uri, access: &Access) -> Result<Option<Intercept>, ConfigError> {
    let rules = match &access.proxy {
        Some(proxy) => Matcher::builder().all(proxy.expose_secret()),
        None => Matcher::builder()
            .https(first_set(["HTTPS_PROXY", "https_proxy"]))
            .no(first_set(["NO_PROXY", "no_proxy"])),
    };
    match rules.build().intercept(base) {
        Some(proxy) if proxy.uri().scheme_str() != Some("http") => {
            Err(ConfigError::new("HTTPS_PROXY", "is not an address such as http://proxy.internal:3128"))
        }
        proxy => Ok(proxy),
    }
}

/// Returns the value of the first of these environment variables that is set, or an empty text.
fn first_set(names: [&str; 2]) -> String {
    names.iter().find_map(|name| env::var(name).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_device_is_neither_a_credential_nor_an_authority() {
        let zero = Path::new("/dev/zero");
        let header = Header {
            name: http::header::AUTHORIZATION,
            prefix: "Bearer ",
            source: Source::File(zero.into()),
        };
        let access = Access { headers: vec![header], ca_file: Some(zero.into()), proxy: None };
        let said = header_values(&access).unwrap_err().to_string();
        assert_eq!(
            said,
            "FAREGATE_MODELS: header \"authorization\": the file /dev/zero cannot be read: is neither a file nor a pipe"
        );
        let base = Uri::from_static("https://vendor.example/v1");
        let said = upstream_connector(&base, &access, Duration::from_secs(1)).err().unwrap().to_string();
        assert_eq!(said, "FAREGATE_MODELS: /dev/zero: is neither a file nor a pipe");
    }
}
