"""A certificate authority for one test run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from typing import Any

from attrs import frozen
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL.crypto import FILETYPE_PEM
from twisted.internet.ssl import Certificate, CertificateOptions, KeyPair, PrivateCertificate


@frozen
class Authority:
    """Signs certificates of servers."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def trusted(self) -> Certificate:
        return Certificate.loadPEM(self.certificate.public_bytes(Encoding.PEM))

    def pem(self, *names: str, days: int = 1) -> tuple[bytes, bytes]:
        """A server's certificate for these names or addresses, and its key, as PEM.

        :param days: see ``server``.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subjects = [_subject(name) for name in names]
        certificate = (
            _builder(names[0], self.certificate.subject, days)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
            .sign(self.key, SHA256())
        )
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return certificate.public_bytes(Encoding.PEM), key_pem

    def server(self, *names: str, days: int = 1, **options: Any) -> CertificateOptions:
        """The TLS options of a server with these names or addresses.

        :param days: days until the certificate expires; negative if it has expired, above three
            if it is not valid yet.
        :param options: further options of TLS.
        """
        certificate_pem, key_pem = self.pem(*names, days=days)
        private = PrivateCertificate.fromCertificateAndKeyPair(
            Certificate.loadPEM(certificate_pem), KeyPair.load(key_pem, FILETYPE_PEM)
        )
        return CertificateOptions(
            privateKey=private.privateKey.original, certificate=private.original, **options
        )


@cache
def authority(name: str = "Tests") -> Authority:
    """An authority of that name, created once for each name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(name, subject, 1)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
    return Authority(key, certificate)


def _builder(name: str, issuer: x509.Name, days: int) -> x509.CertificateBuilder:
    ends = datetime.now(UTC) + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - timedelta(days=3))
        .not_valid_after(ends)
    )


def _subject(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
