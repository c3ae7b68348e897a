//! TLS of the public port.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use rustls::{ServerConfig, crypto::ring};
use shared_config::{ConfigError, Pem, Reread, current::Current, reread};
use tokio_rustls::TlsAcceptor;

use super::{
    pem::{certificates, private, together, unfit},
    validity::{self, Decisive},
};
use crate::serve::PortTls;

const CERT: &str = "FAREGATE_TLS_CERT";
const KEY: &str = "FAREGATE_TLS_KEY";

/// Files of the public port's TLS. Either both are set, or neither.
#[derive(Args, Clone, Debug, Default)]
#[group(id = "public-tls")]
pub struct PublicTlsOptions {
    /// PEM file with the public port's certificate and all intermediate certificates. With it, the port uses TLS
    #[arg(long, env = CERT, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// PEM file with that certificate's private key
    #[arg(long, env = KEY, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

/// TLS of the public port. Its certificate may be replaced. Cheap to clone.
#[derive(Clone)]
pub struct PublicTls {
    files: Arc<PublicTlsOptions>,
    current: Arc<Current<ServerConfig>>,
}

impl PublicTlsOptions {
    /// Reads the files. Returns `None` if none are configured.
    pub fn open(&self) -> Result<Option<PublicTls>, ConfigError> {
        let Some((server, certificate)) = self.read()? else { return Ok(None) };
        validity::show(&[(&certificate, Decisive::First)]);
        Ok(Some(PublicTls { files: Arc::new(self.clone()), current: Arc::new(Current::new(server)) }))
    }

    /// Returns the scheme of the public port's addresses.
    pub const fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() { "https" } else { "http" }
    }

    /// Reads the files. Returns the TLS settings and the certificate, whose expiry is shown in a metric.
    fn read(&self) -> Result<Option<(ServerConfig, Pem)>, ConfigError> {
        let Some([cert, key]) = together([(CERT, &self.tls_cert), (KEY, &self.tls_key)])? else {
            return Ok(None);
        };
        let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| cert.refused(e))?
            .with_no_client_auth()
            .with_single_cert(certificates(&cert)?, private(&key)?)
            .map_err(|e| unfit(&key, &cert, &e))?;
        server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Some((server, cert)))
    }
}

impl PublicTls {
    /// When settings are reloaded, reads the files again. Connections that begin after that use the new certificate.
    pub fn rereads(&self) -> Reread {
        let (files, current) = (self.files.clone(), self.current.clone());
        reread(
            move || files.read(),
            move |read| {
                if let Some((server, certificate)) = read {
                    validity::show(&[(&certificate, Decisive::First)]);
                    current.replace(server);
                }
            },
        )
    }

    pub fn port(&self) -> PortTls {
        let current = self.current.clone();
        PortTls::for_clients(move || TlsAcceptor::from(current.get()))
    }
}
