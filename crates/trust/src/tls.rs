use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::{TrustError, file};

/// What one side of TLS shows, and whom it believes. All are PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, followed by those that lead to the authority.
    pub certificate: PathBuf,
    /// The certificate's private key. Others must not be able to read the file.
    pub key: PathBuf,
    /// The authority, or several, of which one must have signed the other side's certificate.
    pub ca: PathBuf,
}

/// TLS 1.3 for who is connected to: whoever connects must show a certificate of the authority.
///
/// # Errors
/// A [`TrustError`] that says which file is of no use, and why.
pub fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TrustError> {
    let Material { chain, key, roots } = Material::read(files)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let verifier = verifier.map_err(|error| TrustError::content(&files.ca, error.to_string()))?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key);
    config.map(Arc::new).map_err(|error| mismatch(&files.certificate, &files.key, &error))
}

/// TLS 1.3 for who is connected to, by whoever can prove in another way who it is, or needs not.
///
/// # Errors
/// A [`TrustError`] that says which file is of no use, and why.
pub fn anonymous_server_config(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TrustError> {
    let (chain, secret) = (certificates(certificate)?, private_key(key)?);
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, secret);
    config.map(Arc::new).map_err(|error| mismatch(certificate, key, &error))
}

/// TLS 1.3 for who connects: the other side must show a certificate of the authority, with the name that it was
/// connected to by.
///
/// # Errors
/// A [`TrustError`] that says which file is of no use, and why.
pub fn client_config(files: &TlsFiles) -> Result<Arc<ClientConfig>, TrustError> {
    let Material { chain, key, roots } = Material::read(files)?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key);
    config.map(Arc::new).map_err(|error| mismatch(&files.certificate, &files.key, &error))
}

/// TLS 1.3 for who connects and does not show who it is: it has another way, or needs none.
///
/// # Errors
/// A [`TrustError`] that says why the file of authorities is of no use.
pub fn anonymous_client_config(ca: &Path) -> Result<Arc<ClientConfig>, TrustError> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has TLS 1.3")
        .with_root_certificates(authorities(ca)?)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Said with each configuration: a provider for the whole process could be set by others.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// What the files hold.
struct Material {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    roots: RootCertStore,
}

impl Material {
    fn read(files: &TlsFiles) -> Result<Material, TrustError> {
        let roots = authorities(&files.ca)?;
        let key = private_key(&files.key)?;
        Ok(Material { chain: certificates(&files.certificate)?, key, roots })
    }
}

fn authorities(path: &Path) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| TrustError::content(path, error.to_string()))?;
    }
    Ok(roots)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TrustError> {
    let pem = file::read_secret(path)?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes());
    key.map_err(|_| TrustError::content(path, "expected a private key as PEM"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let pem = file::read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    match certificates {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        _ => Err(TrustError::content(path, "expected certificates as PEM")),
    }
}

fn mismatch(certificate: &Path, key: &Path, error: &rustls::Error) -> TrustError {
    TrustError::content(certificate, format!("not with the key of {}: {error}", key.display()))
}
