//! TLS in front of a port.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;

/// TLS of a port. Its certificates may be replaced between two handshakes.
#[derive(Clone)]
pub struct PortTls {
    acceptor: Arc<dyn Fn() -> TlsAcceptor + Send + Sync>,
    /// True if every peer is one of our services, so that a failed handshake is worth a warning.
    pub(super) among_services: bool,
}

impl PortTls {
    /// Makes the TLS of a port that is open to anyone. Each handshake asks for the acceptor.
    pub(crate) fn for_clients(acceptor: impl Fn() -> TlsAcceptor + Send + Sync + 'static) -> Self {
        Self { acceptor: Arc::new(acceptor), among_services: false }
    }

    pub(crate) fn among_services(acceptor: impl Fn() -> TlsAcceptor + Send + Sync + 'static) -> Self {
        Self { acceptor: Arc::new(acceptor), among_services: true }
    }

    /// Returns the acceptor for a handshake that begins now.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        (self.acceptor)()
    }
}
