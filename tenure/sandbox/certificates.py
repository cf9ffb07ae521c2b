"""Keys and certificates of the sandbox, for its control plane and for Temporal with mTLS.

They are created once per state directory, so that a reopened sandbox keeps its trust.
"""

import datetime
import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=3650)
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
ADDRESSES = ("127.0.0.1", "10.100.0.1")
_AS_SERVER, _AS_CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True)
class Certificates:
    """Paths of the PEM files. The service-account key signs the tokens of ServiceAccounts."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def serving_certificate(self) -> Path:
        return self.folder / "apiserver.crt"

    @property
    def serving_key(self) -> Path:
        return self.folder / "apiserver.key"

    @property
    def service_account_key(self) -> Path:
        return self.folder / "service-account.key"

    @property
    def service_account_public(self) -> Path:
        return self.folder / "service-account.pub"


@dataclass(frozen=True)
class MutualTls:
    """PEM files for both sides of mTLS with one CA."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def server(self) -> Path:
        return self.folder / "server.crt"

    @property
    def server_key(self) -> Path:
        return self.folder / "server.key"

    @property
    def client(self) -> Path:
        return self.folder / "client.crt"

    @property
    def client_key(self) -> Path:
        return self.folder / "client.key"


def serving_context(files: Certificates) -> ssl.SSLContext:
    """TLS context for another server that clients of the API server must trust."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.serving_certificate, files.serving_key)
    return context


def ensure_certificates(folder: Path) -> Certificates:
    """Existing certificates of the folder, or new ones."""
    files = Certificates(folder)
    if files.service_account_public.exists():
        return files
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority_key, serving_key, signing_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    authority = _authority(authority_key)
    signed = _sign("kube-apiserver", [_AS_SERVER], serving_key, authority, authority_key)
    _write(files.authority, _certificate_pem(authority))
    _write(files.serving_certificate, _certificate_pem(signed))
    _write(files.serving_key, _private_pem(serving_key))
    _write(files.service_account_key, _private_pem(signing_key))
    _write(files.service_account_public, _public_pem(signing_key))
    return files


def ensure_mutual_tls(folder: Path) -> MutualTls:
    """Existing certificates of the folder, or new ones. The server also uses its certificate as a client of itself."""
    files = MutualTls(folder)
    if files.client_key.exists():
        return files
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority_key, server_key, client_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    authority = _authority(authority_key)
    server = _sign("temporal", [_AS_SERVER, _AS_CLIENT], server_key, authority, authority_key)
    client = _sign("tenure", [_AS_CLIENT], client_key, authority, authority_key)
    _write(files.authority, _certificate_pem(authority))
    _write(files.server, _certificate_pem(server))
    _write(files.server_key, _private_pem(server_key))
    _write(files.client, _certificate_pem(client))
    _write(files.client_key, _private_pem(client_key))
    return files


def _authority(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandbox-ca")])
    usage = x509.KeyUsage(
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
    builder = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    identity = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        builder.add_extension(usage, critical=True).add_extension(identity, critical=False).sign(key, hashes.SHA256())
    )


def _sign(
    name: str,
    usages: Sequence[x509.ObjectIdentifier],
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    addresses = [x509.IPAddress(ipaddress.ip_address(text)) for text in ADDRESSES]
    alternatives = x509.SubjectAlternativeName([*(x509.DNSName(text) for text in NAMES), *addresses])
    # Python 3.13 verifies with VERIFY_X509_STRICT, which requires the authority key identifier.
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(subject, authority.subject, key)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + VALID)
    )


def _certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
