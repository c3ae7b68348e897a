//! Access to upstreams, as the catalogue describes it: header values, private certificate authorities and proxies.

use std::{env, net::IpAddr, time::Duration};

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

/// Makes the connector of the upstream at `base`. It must connect within `deadline`.
pub fn upstream_connector(base: &Uri, access: &Access, deadline: Duration) -> Result<Connector, ConfigError> {
    let tls = access.ca_file.as_deref().map(|file| trusting(&Pem::read(MODELS, file)?)).transpose()?;
    Ok(connector(deadline, tls, proxy(base, access)?.as_ref()))
}

/// Returns TLS settings that trust the certificate authorities in a file in addition to the public ones.
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

/// Returns an upstream's proxy: from the catalogue or, for https, from the environment.
fn proxy(base: &Uri, access: &Access) -> Result<Option<Intercept>, ConfigError> {
    let rules = match &access.proxy {
        Some(proxy) => Matcher::builder().all(proxy.expose_secret()),
        None => Matcher::builder()
            .https(first_set(["HTTPS_PROXY", "https_proxy"]))
            .no(hosts_without_proxy(&first_set(["NO_PROXY", "no_proxy"]), base)),
    };
    match rules.build().intercept(base) {
        Some(proxy) if proxy.uri().scheme_str() != Some("http") => {
            Err(ConfigError::new("HTTPS_PROXY", "is not an address such as http://proxy.internal:3128"))
        }
        proxy => Ok(proxy),
    }
}

/// Returns the value of the first of these environment variables that is set and is not empty. If there is none,
/// returns an empty text.
fn first_set(names: [&str; 2]) -> String {
    names.iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty())).unwrap_or_default()
}

/// Rewrites a list of hosts that are reached without a proxy. As in curl, Go and Python, an entry may begin with `*.`,
/// and may end with a port. An entry with a port applies only if the server has that port.
fn hosts_without_proxy(list: &str, base: &Uri) -> String {
    let port = base.port_u16().unwrap_or(if base.scheme_str() == Some("http") { 80 } else { 443 });
    let host_of = |entry: &str| {
        let entry = entry.trim();
        let is_address = entry.parse::<IpAddr>().is_ok();
        let (host, named) = match entry.rsplit_once(':') {
            Some((host, digits)) if !is_address && !digits.is_empty() => match digits.parse::<u16>() {
                Ok(named) => (host, Some(named)),
                // This is an IPv6 network, such as 2001::/17.
                Err(_) => (entry, None),
            },
            Some(_) | None => (entry, None),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = host.strip_prefix('*').filter(|domain| domain.starts_with('.')).unwrap_or(host);
        named.is_none_or(|named| named == port).then(|| host.to_owned())
    };
    list.split(',').filter_map(host_of).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn hosts_are_reached_directly_in_every_spelling_of_the_list() {
        let direct = |list: &str, base: &'static str| {
            let base = Uri::from_static(base);
            let rules =
                Matcher::builder().https("http://proxy.internal:3128").no(hosts_without_proxy(list, &base));
            rules.build().intercept(&base).is_none()
        };
        for (list, base, is_direct) in [
            ("*.example.com", "https://a.example.com/v1", true),
            ("*.example.com", "https://a.example.org/v1", false),
            (".example.com", "https://a.example.com/v1", true),
            ("a.example.com:443", "https://a.example.com/v1", true),
            ("a.example.com:8443", "https://a.example.com/v1", false),
            ("x, a.example.com:8443", "https://a.example.com:8443/v1", true),
            ("*.example.com:8443", "https://a.example.com:8443/v1", true),
            ("10.0.0.0/8", "https://10.1.2.3/v1", true),
            ("[::1]:443", "https://[::1]/v1", true),
            ("::1", "https://[::1]/v1", true),
            ("2001:db8::/32", "https://[2001:db8::1]/v1", true),
            ("*", "https://a.example.com/v1", true),
            ("", "https://a.example.com/v1", false),
        ] {
            assert_eq!(direct(list, base), is_direct, "{list} {base}");
        }
    }

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
