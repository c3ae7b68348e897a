//! Certificates for TLS tests: an authority, and the certificates that it issues.

#![expect(clippy::missing_panics_doc, clippy::unwrap_used, reason = "a panic is how a test fails")]

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::CertificateDer;

/// An authority that only one test trusts.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    /// Makes an authority that differs from every other.
    #[expect(clippy::new_without_default, reason = "every authority is another")]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "the authority of a test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    pub fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// Issues a certificate for a name or an address.
    pub fn issue(&self, name: &str) -> Issued {
        self.sign(&CertificateParams::new([name.to_owned()]).unwrap())
    }

    /// Issues a certificate that expires when this day begins: year, month and day of the month.
    pub fn issue_until(&self, name: &str, (year, month, day): (i32, u8, u8)) -> Issued {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, month, day);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Issued { certificate, key: key.serialize_pem() }
    }
}
