//! An authority for tests within TLS: it signs certificates.
#![allow(unreachable_pub, reason = "a module of its own in the tests of other crates")]

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub pem: String,
}

/// A certificate and its private key, both PEM.
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

impl Authority {
    /// A new one, which nobody believes yet.
    #[allow(clippy::new_without_default, reason = "two of them differ")]
    pub fn new() -> Authority {
        let mut params = CertificateParams::new([]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for `name`, a host name or an address.
    pub fn sign(&self, name: &str) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}
