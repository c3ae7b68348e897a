//! Mutual TLS between the services, and TLS of the public port. For mutual TLS, each service has a certificate, and all
//! services trust the same authority.

mod pem;
mod public;
pub mod validity;

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, ServerConfig, WantsVerifier,
    crypto::{CryptoProvider, ring},
    server::WebPkiClientVerifier,
};
use shared_config::{ConfigError, Pem, Reread, current::Current, reread};
use tokio_rustls::TlsAcceptor;

use crate::serve::PortTls;
use pem::{certificates, private, together, unfit};
pub use public::{PublicTls, PublicTlsOptions};
use validity::Decisive;

const CERT: &str = "FAREGATE_INTERNAL_TLS_CERT";
const KEY: &str = "FAREGATE_INTERNAL_TLS_KEY";
const CA: &str = "FAREGATE_INTERNAL_TLS_CA";

/// Files of mutual TLS between the services. Either all three are set, or none.
#[derive(Args, Clone, Debug, Default)]
#[group(id = "internal-tls")]
pub struct TlsOptions {
    /// PEM file with this service's certificate and all intermediate certificates
    #[arg(long = "internal-tls-cert", env = CERT, value_name = "FILE")]
    cert: Option<PathBuf>,

    /// PEM file with that certificate's private key
    #[arg(long = "internal-tls-key", env = KEY, value_name = "FILE")]
    key: Option<PathBuf>,

    /// PEM file with the certificate authority for calls between the services. With it, calls are encrypted, and each
    /// side demands a certificate from this authority
    #[arg(long = "internal-tls-ca", env = CA, value_name = "FILE")]
    ca: Option<PathBuf>,
}

/// Mutual TLS. Its certificates may be replaced, but existing connections keep their old certificates. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    files: Arc<TlsOptions>,
    current: Arc<Current<MutualTls>>,
}

/// TLS settings for both ends of a connection between services.
#[derive(Clone)]
pub struct MutualTls {
    client: ClientConfig,
    server: Arc<ServerConfig>,
    /// Settings of the server's end for gRPC, which uses HTTP/2.
    grpc_server: Arc<ServerConfig>,
    /// This service's certificate, followed by all intermediate certificates.
    pub certificate: Pem,
    pub key: Pem,
    /// The certificate authority that both ends trust.
    pub authority: Pem,
}

impl TlsOptions {
    /// Reads the files. Returns `None` if none are configured.
    pub fn open(&self) -> Result<Option<Tls>, ConfigError> {
        let Some(read) = self.read()? else { return Ok(None) };
        read.show();
        Ok(Some(Tls { files: Arc::new(self.clone()), current: Arc::new(Current::new(read)) }))
    }

    fn read(&self) -> Result<Option<MutualTls>, ConfigError> {
        let Some([cert, key, ca]) = together([(CERT, &self.cert), (KEY, &self.key), (CA, &self.ca)])? else {
            return Ok(None);
        };
        MutualTls::new(cert, key, ca).map(Some)
    }
}

impl Tls {
    /// Returns the TLS settings with the current certificates, for connections that begin now.
    pub fn get(&self) -> Arc<MutualTls> {
        self.current.get()
    }

    /// When settings are reloaded, reads the files again and replaces the certificates.
    pub fn rereads(&self) -> Reread {
        let (files, current) = (self.files.clone(), self.current.clone());
        reread(
            move || files.read(),
            move |read| {
                if let Some(read) = read {
                    read.show();
                    current.replace(read);
                }
            },
        )
    }

    pub fn port(&self) -> PortTls {
        let current = self.current.clone();
        PortTls::among_services(move || current.get().acceptor())
    }

    pub fn grpc_port(&self) -> PortTls {
        let current = self.current.clone();
        PortTls::among_services(move || TlsAcceptor::from(current.get().grpc_server.clone()))
    }
}

impl MutualTls {
    /// Makes mutual TLS from a certificate with its intermediate certificates, from its key, and from the authority.
    pub fn new(certificate: Pem, key: Pem, authority: Pem) -> Result<Self, ConfigError> {
        let chain = certificates(&certificate)?;
        let mut roots = RootCertStore::empty();
        for root in certificates(&authority)? {
            roots.add(root).map_err(|e| authority.refused(e))?;
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(ring::default_provider());
        let demanding = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let demanding = demanding.build().map_err(|e| authority.refused(e))?;
        // An error means that the certificate and the key do not belong together.
        let unfit = |e| unfit(&key, &certificate, &e);
        let client = client_versions(&provider)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.clone(), private(&key)?)
            .map_err(unfit)?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| authority.refused(e))?
            .with_client_cert_verifier(demanding)
            .with_single_cert(chain, private(&key)?)
            .map_err(unfit)?;
        let mut grpc_server = server.clone();
        grpc_server.alpn_protocols = vec![b"h2".to_vec()];
        let (server, grpc_server) = (Arc::new(server), Arc::new(grpc_server));
        Ok(Self { client, server, grpc_server, certificate, key, authority })
    }

    /// Shows in a metric when the certificates expire, and warns if that is soon.
    fn show(&self) {
        validity::show(&[(&self.certificate, Decisive::First), (&self.authority, Decisive::Last)]);
    }

    /// Returns the TLS settings of HTTP clients that call another service.
    pub fn client(&self) -> ClientConfig {
        self.client.clone()
    }

    /// Returns the TLS acceptor of a service's HTTP listener.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.server.clone())
    }
}

fn client_versions(
    provider: &Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, ConfigError> {
    ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| ConfigError::new(CA, e))
}

#[cfg(test)]
mod tests {
    use certificates::{Authority, Issued};
    use rustls::pki_types::ServerName;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;

    use super::*;

    fn mutual(certificate: &str, key: &str, authority: &str) -> Result<MutualTls, ConfigError> {
        let pem = |setting, text: &str| Pem::new(setting, "file.pem", text.into());
        MutualTls::new(pem(CERT, certificate), pem(KEY, key), pem(CA, authority))
    }

    fn tls(of: &Authority, trusting: &Authority) -> MutualTls {
        let Issued { certificate, key } = of.issue("localhost");
        mutual(&certificate, &key, &trusting.pem()).unwrap()
    }

    /// Returns whether the server accepts a client that has these TLS settings.
    async fn is_accepted(server: &MutualTls, client: ClientConfig) -> bool {
        let (ours, theirs) = tokio::io::duplex(16 << 10);
        let acceptor = server.acceptor();
        let serving = tokio::spawn(async move {
            let mut stream = acceptor.accept(theirs).await?;
            let mut received = [0; 5];
            stream.read_exact(&mut received).await.map(|_| received)
        });
        let name = ServerName::try_from("localhost").unwrap();
        let connected = TlsConnector::from(Arc::new(client)).connect(name, ours).await;
        // A client may learn only after the handshake that its certificate was refused. So it stays connected until the
        // server has read something from it.
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
        let (ours, other) = (Authority::new(), Authority::new());
        let server = tls(&ours, &ours);
        assert!(is_accepted(&server, tls(&ours, &ours).client()).await);
        assert!(!is_accepted(&server, tls(&other, &ours).client()).await, "another authority's certificate");
        assert!(
            !is_accepted(&server, tls(&ours, &other).client()).await,
            "the server is of another authority"
        );
        let mut roots = RootCertStore::empty();
        roots.add(ours.der()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let bare = client_versions(&provider).unwrap().with_root_certificates(roots).with_no_client_auth();
        assert!(!is_accepted(&server, bare).await, "no certificate at all");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_setting() {
        let ours = Authority::new();
        let Issued { certificate: cert, key } = ours.issue("localhost");
        let other_key = ours.issue("localhost").key;
        let refused = |cert: &str, key: &str, ca: &str| {
            mutual(cert, key, ca).err().map(|e| e.to_string()).unwrap_or_default()
        };
        let ca = ours.pem();
        for (error, setting) in [
            (refused(&cert, &other_key, &ca), KEY),
            (refused(&key, &key, &ca), CERT),
            (refused(&cert, "no key", &ca), KEY),
            (refused(&cert, &key, "nothing"), CA),
        ] {
            assert!(error.starts_with(&format!("{setting}: file.pem")), "{error}");
        }
        let only_one = TlsOptions { ca: Some("ca.pem".into()), ..TlsOptions::default() };
        let e = only_one.open().err().map(|e| e.to_string()).unwrap_or_default();
        assert!(e.starts_with(CERT), "{e}");
        assert!(TlsOptions::default().open().unwrap().is_none());
    }
}
