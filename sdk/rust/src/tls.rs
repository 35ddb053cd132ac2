//! How sessions are secured.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// HTTP/2, as gRPC speaks it.
pub(crate) const ALPN: &[u8] = b"h2";

type BoxError = Box<dyn StdError + Send + Sync>;

/// How sessions are secured: by TLS 1.3 with certificates of both sides. It is asked anew at each dial, so that certificates and authorities are replaced without a
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

    pub(crate) fn is_plaintext(&self) -> bool {
        matches!(self.0, Source::Plaintext)
    }

    /// The configuration of one dial; `None` for plaintext.
    pub(crate) fn config(&self) -> Result<Option<Arc<ClientConfig>>, BoxError> {
        match &self.0 {
            Source::Pem(pem) => pem()?.config().map(Arc::new).map(Some),
            Source::Plaintext => Ok(None),
        }
    }
}

impl Pem {
    fn config(&self) -> Result<ClientConfig, BoxError> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&self.ca) {
            roots.add(authority?)?;
        }
        if roots.is_empty() {
            return Err("the authorities hold no certificate in PEM".into());
        }
        let cert = CertificateDer::pem_slice_iter(&self.cert).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)?;
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()));
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(cert, key)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(config)
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
