"""Certificates: the owner's, or one that the server makes for this machine alone."""

import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hubbub.errors import InvalidInput
from hubbub.output_files import protect_paths
from hubbub.server.settings import ServerSettings, is_loopback

__all__ = ["Certificate", "find_certificate", "make_certificate"]

_DAYS = 397
"""As long as browsers accept."""
_RENEWAL_DAYS = 30


class Certificate:
    """The files of a certificate and its key."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.certificate = certificate
        self.key = key

    def context(self) -> ssl.SSLContext:
        """Return what a server needs: TLS 1.2 or later."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError):
            raise InvalidInput(
                "the certificate or its key cannot be read", why="TLS needs both",
                fix="name PEM files as certificate and key in [server]",
            ) from None  # fmt: skip
        return context


def find_certificate(settings: ServerSettings) -> Certificate:
    """Return the owner's certificate; for loopback, one that is made now or was made before.

    Guarantee: nothing but this machine is served without a certificate that its owner provided.
    """
    if settings.certificate is not None and settings.key is not None:
        protect_paths(settings.key)
        return Certificate(Path(settings.certificate), Path(settings.key))
    if not is_loopback(settings.host):
        raise InvalidInput(
            f"the server would listen on {settings.host} without a certificate",
            why="passwords and answers would be readable on the network, or anybody could pose as the server",
            fix="name PEM files as certificate and key in [server], or listen on 127.0.0.1",
        )
    return make_certificate(Path(settings.state).with_suffix(".pem"))


def make_certificate(path: Path) -> Certificate:
    """Make a certificate for this machine's own addresses, unless there is one that is still valid."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        raise InvalidInput(
            "the package cryptography is not installed", why="it makes the server's certificate",
            fix="pip install 'hubbub[server]'",
        ) from None  # fmt: skip

    key_path = path.with_suffix(".key")
    today = datetime.now(UTC)
    if path.exists() and key_path.exists():
        known = x509.load_pem_x509_certificate(path.read_bytes())
        if known.not_valid_after_utc > today + timedelta(days=_RENEWAL_DAYS):
            return Certificate(path, key_path)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hubbub on this machine")])
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"), False
    )
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectAlternativeName([x509.DNSName("localhost"), *map(x509.IPAddress, addresses)]), False),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, encipher_only=False, decipher_only=False, **usage
            ),
            True,
        ),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (own, False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), False),
    ]
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(hours=1))
        .not_valid_after(today + timedelta(days=_DAYS))
    )
    for extension, is_critical in extensions:
        builder = builder.add_extension(extension, critical=is_critical)
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(key_path, private, 0o600)
    _write(path, builder.sign(key, hashes.SHA256()).public_bytes(encoding), 0o644)
    protect_paths(key_path)
    return Certificate(path, key_path)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
