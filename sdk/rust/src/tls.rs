//! How sessions are secured.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error as TlsError, RootCertStore};

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

    /// Sessions secured by certificates that stay the same while the host runs.
    pub fn pem(pem: Pem) -> Self {
        Self::from_fn(move || Ok(pem.clone()))
    }

    /// No security at all: for tests on loopback.
    pub fn plaintext() -> Self {
        Self(Source::Plaintext)
    }

    /// The configuration of one dial; `None` for plaintext.
    pub(crate) fn config(&self) -> Result<Option<Arc<ClientConfig>>, BoxError> {
        match &self.0 {
            Source::Pem(pem) => pem()?.config().map(Arc::new).map(Some),
            Source::Plaintext => Ok(None),
        }
    }

    /// Adds to the error of a session that was not accepted the fault of the certificate of the host, or else that the dispatcher
    /// refused it.
    pub(crate) fn explain(&self, error: String) -> String {
        let own = match &self.0 {
            Source::Pem(pem) => pem().ok().and_then(|pem| pem.fault()),
            Source::Plaintext => None,
        };
        match own {
            Some(own) => format!("{own}: {error}"),
            None if error.contains("received fatal alert") => format!("the dispatcher refused this host: {error}"),
            None => error,
        }
    }
}

impl Pem {
    /// A reason, to be seen from here, for which no dispatcher accepts the certificate of the host.
    fn fault(&self) -> Option<String> {
        let certs = self.certs().ok()?;
        let (leaf, intermediates) = certs.split_first()?;
        // Which authorities the dispatcher trusts is not known here. They are looked at last.
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots().ok()?), provider()).build().ok()?;
        let Err(TlsError::InvalidCertificate(fault)) =
            verifier.verify_client_cert(leaf, intermediates, UnixTime::now())
        else {
            return None;
        };
        let own = match fault {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "has expired",
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "is not valid yet by the clock of this machine"
            }
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => "is not for clients",
            _ => return None,
        };
        Some(format!("the certificate of this host {own} ({fault})"))
    }

    fn certs(&self) -> Result<Vec<CertificateDer<'static>>, BoxError> {
        let certs = CertificateDer::pem_slice_iter(&self.cert).collect::<Result<Vec<_>, _>>()?;
        if certs.is_empty() { Err("the certificate of this host is no PEM".into()) } else { Ok(certs) }
    }

    fn roots(&self) -> Result<RootCertStore, BoxError> {
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&self.ca) {
            roots.add(authority?)?;
        }
        if roots.is_empty() { Err("the authorities hold no certificate in PEM".into()) } else { Ok(roots) }
    }

    fn config(&self) -> Result<ClientConfig, BoxError> {
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| format!("the key of this host: {error}"))?;
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(self.certs()?, key)
            .map_err(|error| format!("the certificate of this host and its key: {error}"))?;
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

fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}

fn read(path: &Path) -> Result<Vec<u8>, BoxError> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()).into())
}
