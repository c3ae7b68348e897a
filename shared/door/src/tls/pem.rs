//! Certificates and keys in files.

use std::path::PathBuf;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use shared_config::{ConfigError, Pem};

/// Reads the files. Either all must be configured, or none.
pub(super) fn together<const N: usize>(
    files: [(&'static str, &Option<PathBuf>); N],
) -> Result<Option<[Pem; N]>, ConfigError> {
    if files.iter().all(|(_, file)| file.is_none()) {
        return Ok(None);
    }
    let mut read = Vec::with_capacity(N);
    for (setting, file) in files {
        let Some(file) = file else {
            let settings = files.map(|(setting, _)| setting).join(", ");
            return Err(ConfigError::new(setting, format!("is not set; set all of {settings}, or none")));
        };
        read.push(Pem::read(setting, file)?);
    }
    Ok(read.try_into().ok())
}

pub(crate) fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.text().as_bytes()).collect();
    let read = read.map_err(|e| pem.refused(e))?;
    if read.is_empty() {
        return Err(pem.refused("holds no certificate"));
    }
    Ok(read)
}

pub(crate) fn private(key: &Pem) -> Result<PrivateKeyDer<'static>, ConfigError> {
    PrivateKeyDer::from_pem_slice(key.text().as_bytes()).map_err(|e| key.refused(e))
}

pub(crate) fn unfit(key: &Pem, certificate: &Pem, e: &rustls::Error) -> ConfigError {
    key.refused(format!("does not match the certificate of {}: {e}", certificate.setting()))
}
