"""A certificate authority for one run, and the certificates that it signs for addresses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import (
    BasicConstraints,
    Certificate,
    CertificateBuilder,
    IPAddress,
    KeyUsage,
    Name,
    NameAttribute,
    SubjectAlternativeName,
    load_pem_x509_certificate,
    random_serial_number,
)
from cryptography.x509.oid import NameOID


@frozen
class Authority:
    """Signs certificates.  The authority and all certificates share one key, which is enough."""

    key: EllipticCurvePrivateKey
    certificate: Certificate

    @classmethod
    def make(cls) -> Authority:
        key = generate_private_key(SECP256R1())
        usage = KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        made = (
            _builder(key, "benchmark authority")
            .issuer_name(_name("benchmark authority"))
            .add_extension(BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, SHA256())
        )
        return cls(key, made)

    @classmethod
    def load(cls, file: Path) -> Authority:
        """Read an authority from the file that ``save`` wrote."""
        text = file.read_bytes()
        key = load_pem_private_key(text, None)
        assert isinstance(key, EllipticCurvePrivateKey)
        return cls(key, load_pem_x509_certificate(text))

    def save(self, file: Path) -> None:
        """Write key and certificate to a file, which clients also use to trust the authority."""
        private = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        file.write_bytes(private + self.certificate.public_bytes(Encoding.PEM))

    def certify(self, address: str) -> Certificate:
        """A signed certificate for one address."""
        return (
            _builder(self.key, address)
            .issuer_name(self.certificate.subject)
            .add_extension(SubjectAlternativeName([IPAddress(ip_address(address))]), critical=False)
            .sign(self.key, SHA256())
        )


def _builder(key: EllipticCurvePrivateKey, name: str) -> CertificateBuilder:
    now = datetime.now(UTC)
    return (
        CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key.public_key())
        .serial_number(random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _name(text: str) -> Name:
    return Name([NameAttribute(NameOID.COMMON_NAME, text)])
