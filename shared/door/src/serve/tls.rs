//! TLS in front of a port.

use std::sync::Arc;

use tokio_rustls::TlsAcceptor;

/// TLS of a port. Its certificates may be replaced between two handshakes.
#[derive(Clone)]
pub struct PortTls {
    acceptor: Arc<dyn Fn() -> TlsAcceptor + Send + Sync>,
    /// Whether all peers are our services, so that a failed handshake deserves a warning.
    pub(super) among_services: bool,
}

impl PortTls {
    /// Makes the TLS of a port that is open to everyone. Each handshake calls `acceptor`.
    pub(crate) fn for_clients(acceptor: impl Fn() -> TlsAcceptor + Send + Sync + 'static) -> Self {
        Self { acceptor: Arc::new(acceptor), among_services: false }
    }

    pub(crate) fn among_services(acceptor: impl Fn() -> TlsAcceptor + Send + Sync + 'static) -> Self {
        Self { acceptor: Arc::new(acceptor), among_services: true }
    }

    /// Returns the acceptor for a handshake that starts now.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        (self.acceptor)()
    }
}
