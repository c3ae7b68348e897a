//! TLS of calls between the services.

use shared_door::tls::MutualTls;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

pub fn client_tls(tls: &MutualTls) -> ClientTlsConfig {
    ClientTlsConfig::new()
        .identity(Identity::from_pem(tls.certificate.text(), tls.key.text()))
        .ca_certificate(Certificate::from_pem(tls.authority.text()))
}
