//! How sessions are secured.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tonic::transport::{Certificate, ClientTlsConfig, Identity};

type BoxError = Box<dyn StdError + Send + Sync>;

/// How sessions are secured. It is asked anew at each dial, so that certificates and authorities are replaced without a
/// restart; sessions that stand are not disturbed.
#[derive(Clone)]
pub struct Tls(Source);

#[derive(Clone)]
enum Source {
    Pem(Arc<dyn Fn() -> Result<Pem, BoxError> + Send + Sync>),
    Plaintext,
}

/// A certificate, its key and the authorities of dispatchers, each as PEM.
#[derive(Clone)]
pub struct Pem {
    /// The certificate of the host, which is its identity to the mesh, and the intermediates behind it.
    pub cert: Vec<u8>,
    /// The key of the certificate.
    pub key: Vec<u8>,
    /// The authorities that dispatchers are verified by.
    pub ca: Vec<u8>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pem")
    }
}

impl Tls {
    /// Sessions secured by files in PEM: the certificate and the key of the host, and the authorities that dispatchers are
    /// verified by. They are read at each dial.
    pub fn files(cert: impl Into<PathBuf>, key: impl Into<PathBuf>, ca: impl Into<PathBuf>) -> Self {
        let (cert, key, ca) = (cert.into(), key.into(), ca.into());
        Self::from_fn(move || Ok(Pem { cert: read(&cert)?, key: read(&key)?, ca: read(&ca)? }))
    }

    /// Sessions secured by what a function returns, which is called at each dial, on the thread of the sessions: it must be
    /// quick.
    pub fn from_fn<F>(pem: F) -> Self
    where
        F: Fn() -> Result<Pem, Box<dyn StdError + Send + Sync>> + Send + Sync + 'static,
    {
        Self(Source::Pem(Arc::new(pem)))
    }

    /// No security at all: for tests on loopback.
    pub fn plaintext() -> Self {
        Self(Source::Plaintext)
    }

    /// The configuration of one dial; `None` for plaintext.
    pub(crate) fn config(&self, server_name: &str) -> Result<Option<ClientTlsConfig>, BoxError> {
        let Source::Pem(pem) = &self.0 else { return Ok(None) };
        let Pem { cert, key, ca } = pem()?;
        if !String::from_utf8_lossy(&ca).contains("-----BEGIN CERTIFICATE-----") {
            return Err("the authorities hold no certificate in PEM".into());
        }
        let config = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(ca))
            .identity(Identity::from_pem(cert, key))
            .domain_name(server_name);
        Ok(Some(config))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Pem(_) => "Tls(certificates)",
            Source::Plaintext => "Tls(plaintext)",
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BoxError> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into())
}
