//! Mutual TLS between the services: each has a certificate, and all trust the same authority.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::{
    process::config::{ConfigError, read_pem},
    secret::{ExposeSecret, SecretString},
};

const CERT: &str = "FAREGATE_INTERNAL_TLS_CERT";
const KEY: &str = "FAREGATE_INTERNAL_TLS_KEY";
const CA: &str = "FAREGATE_INTERNAL_TLS_CA";

/// The files of mutual TLS between the services: all three, or none.
#[derive(Args, Clone, Debug, Default)]
#[group(id = "internal-tls")]
pub struct TlsOptions {
    /// PEM file of the certificate that this service presents, with all intermediate certificates
    #[arg(long = "internal-tls-cert", env = CERT, value_name = "FILE")]
    cert: Option<PathBuf>,

    /// PEM file of that certificate's key
    #[arg(long = "internal-tls-key", env = KEY, value_name = "FILE")]
    key: Option<PathBuf>,

    /// PEM file of the authority: calls between the services are encrypted, and each side demands a certificate of
    /// the authority
    #[arg(long = "internal-tls-ca", env = CA, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// Both ends of mutual TLS. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// The certificate as text, for gRPC.
    certificate: Vec<u8>,
    key: SecretString,
    authority: Vec<u8>,
}

impl TlsOptions {
    /// Reads the files; `None` if none are configured.
    pub fn open(&self) -> Result<Option<Tls>, ConfigError> {
        let files = [(CERT, &self.cert), (KEY, &self.key), (CA, &self.ca)];
        let [Some(cert), Some(key), Some(ca)] = files.map(|(_, file)| file.as_deref()) else {
            let missing = files.iter().find(|(_, file)| file.is_none());
            return match missing {
                Some((setting, _)) if files.iter().any(|(_, file)| file.is_some()) => {
                    let reason = format!("is not set; {CERT}, {KEY} and {CA} belong together");
                    Err(ConfigError::new(setting, reason))
                }
                Some(_) | None => Ok(None),
            };
        };
        let key = String::from_utf8(read_pem(KEY, key)?).map_err(|e| ConfigError::new(KEY, e))?;
        Tls::new(read_pem(CERT, cert)?, key.into(), read_pem(CA, ca)?).map(Some)
    }
}

impl Tls {
    /// Reads PEM texts: a certificate with intermediates, the certificate's key, and the authority.
    pub fn new(certificate: Vec<u8>, key: SecretString, authority: Vec<u8>) -> Result<Self, ConfigError> {
        let chain = certificates(CERT, &certificate)?;
        let private = || PrivateKeyDer::from_pem_slice(key.expose_secret().as_bytes());
        let private = || private().map_err(|e| ConfigError::new(KEY, e));
        let mut roots = RootCertStore::empty();
        for root in certificates(CA, &authority)? {
            roots.add(root).map_err(|e| ConfigError::new(CA, e))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(ring::default_provider());
        let demanding = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let demanding = demanding.build().map_err(|e| ConfigError::new(CA, e))?;
        // Checks that certificate and key belong together.
        let unfit = |e| ConfigError::new(KEY, format!("does not fit the certificate of {CERT}: {e}"));
        let client = client_versions(&provider)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.clone(), private()?)
            .map_err(unfit)?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| ConfigError::new(CA, e))?
            .with_client_cert_verifier(demanding)
            .with_single_cert(chain, private()?)
            .map_err(unfit)?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server), certificate, key, authority })
    }

    /// TLS settings of HTTP clients of another service.
    pub fn client(&self) -> ClientConfig {
        (*self.client).clone()
    }

    /// TLS acceptor for a service's HTTP listener.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.server.clone())
    }

    /// TLS settings of gRPC clients of another service.
    pub fn grpc_client(&self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .identity(Identity::from_pem(&self.certificate, self.key.expose_secret()))
            .ca_certificate(Certificate::from_pem(&self.authority))
    }

    /// TLS acceptor for a service's gRPC listener, which speaks HTTP/2.
    pub fn grpc_acceptor(&self) -> TlsAcceptor {
        let mut server = (*self.server).clone();
        server.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(server))
    }
}

fn client_versions(
    provider: &Arc<CryptoProvider>,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, ConfigError> {
    ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| ConfigError::new(CA, e))
}

fn certificates(setting: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|e| ConfigError::new(setting, e))?;
    if read.is_empty() {
        return Err(ConfigError::new(setting, "holds no certificate"));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;

    use super::*;

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// A certificate of this authority for `localhost`, and its key.
    fn certificate(authority: &Authority) -> (Vec<u8>, SecretString) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let signed = params.signed_by(&key, authority).unwrap();
        (signed.pem().into_bytes(), key.serialize_pem().into())
    }

    fn tls(of: &Authority, trusting: &Authority) -> Tls {
        let (certificate, key) = certificate(of);
        Tls::new(certificate, key, trusting.pem().into_bytes()).unwrap()
    }

    /// Returns whether a server accepts a client with these TLS settings.
    async fn is_accepted(server: &Tls, client: ClientConfig) -> bool {
        let (ours, theirs) = tokio::io::duplex(16 << 10);
        let acceptor = server.acceptor();
        let serving = tokio::spawn(async move {
            let mut stream = acceptor.accept(theirs).await?;
            let mut received = [0; 5];
            stream.read_exact(&mut received).await.map(|_| received)
        });
        let name = ServerName::try_from("localhost").unwrap();
        let connected = TlsConnector::from(Arc::new(client)).connect(name, ours).await;
        // A client may learn only later that its certificate was refused, so it stays until the server has read from
        // it.
        let connected = match connected {
            Ok(mut stream) => stream.write_all(b"hello").await.and(Ok(stream)),
            Err(e) => Err(e),
        };
        let accepted = serving.await.unwrap().is_ok_and(|received| received == *b"hello");
        drop(connected);
        accepted
    }

    #[tokio::test]
    async fn a_client_without_a_certificate_of_the_authority_is_refused() {
        let (ours, other) = (authority(), authority());
        let server = tls(&ours, &ours);
        assert!(is_accepted(&server, tls(&ours, &ours).client()).await);
        assert!(!is_accepted(&server, tls(&other, &ours).client()).await, "another authority's certificate");
        assert!(
            !is_accepted(&server, tls(&ours, &other).client()).await,
            "the server is of another authority"
        );
        let mut roots = RootCertStore::empty();
        roots.add(ours.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let bare = client_versions(&provider).unwrap().with_root_certificates(roots).with_no_client_auth();
        assert!(!is_accepted(&server, bare).await, "no certificate at all");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_setting() {
        let ours = authority();
        let (cert, key) = certificate(&ours);
        let (_, other_key) = certificate(&ours);
        let ca = || ours.pem().into_bytes();
        let refused = |cert: &[u8], key: &SecretString, ca: Vec<u8>| {
            Tls::new(cert.to_vec(), key.clone(), ca).err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert!(refused(&cert, &other_key, ca()).starts_with(KEY));
        assert!(refused(key.expose_secret().as_bytes(), &key, ca()).starts_with(CERT));
        assert!(refused(&cert, &"no key".into(), ca()).starts_with(KEY));
        assert!(refused(&cert, &key, b"nothing".to_vec()).starts_with(CA));
        let only_one = TlsOptions { ca: Some("ca.pem".into()), ..TlsOptions::default() };
        let e = only_one.open().err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.starts_with(CERT), "{e}");
        assert!(TlsOptions::default().open().unwrap().is_none());
    }
}
