//! Certificates for connections to Redis over TLS.

use redis::{ClientTlsConfig, TlsCertificates};

#[derive(Clone, Debug, Default)]
pub struct Certificates(Option<TlsCertificates>);

impl Certificates {
    /// Takes PEM texts: the authority that signed the server's certificate, and the client's certificate and key for
    /// servers that require one. Without an authority, the public ones that are built into the program are trusted,
    /// since container images have none.
    pub fn new(authority: Option<Vec<u8>>, own: Option<(Vec<u8>, Vec<u8>)>) -> Self {
        if authority.is_none() && own.is_none() {
            return Self(None);
        }
        let client_tls = own.map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        Self(Some(TlsCertificates { client_tls, root_cert: authority }))
    }

    pub(in crate::redis) fn get(&self) -> Option<TlsCertificates> {
        self.0.clone()
    }
}
