"""Certificates: the owner's, or one that the server makes for this machine alone."""

import base64
import hashlib
import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from hubbub.errors import InvalidInput
from hubbub.noise.entropy import random_bytes
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
    key_path = path.with_suffix(".key")
    now = datetime.now(UTC)
    if path.exists() and key_path.exists() and _read_end(path) > now + timedelta(days=_RENEWAL_DAYS):
        return Certificate(path, key_path)
    secret = _draw_scalar()
    _write(key_path, _encode_pem("EC PRIVATE KEY", _encode_key(secret)), 0o600)
    _write(path, _encode_pem("CERTIFICATE", _sign_certificate(secret, now)), 0o644)
    protect_paths(key_path)
    return Certificate(path, key_path)


def _read_end(path: Path) -> datetime:
    """The moment until which a certificate of ours is valid; long ago if it cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(path)
        [known] = context.get_ca_certs()
        return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(known["notAfter"])), UTC)
    except (OSError, ssl.SSLError, ValueError):
        return datetime.fromtimestamp(0, UTC)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


# The curve P-256 (FIPS 186-5) and ECDSA, for one signature a year that only this machine makes. A package for
# it would take more room than the whole server; how long the arithmetic takes is seen by nobody.

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BASE = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_Point = tuple[int, int]


def _draw_scalar() -> int:
    """A secret number from 1 to the order − 1; 40 bytes leave a bias below 2^-64."""
    return int.from_bytes(random_bytes(40), "big") % (_ORDER - 1) + 1


def _add(one: _Point | None, other: _Point | None) -> _Point | None:
    """The sum of two points; None is the point at infinity."""
    if one is None or other is None:
        return other if one is None else one
    (x1, y1), (x2, y2) = one, other
    if x1 == x2 and (y1 + y2) % _P == 0:
        return None
    slope = (3 * x1 * x1 - 3) * pow(2 * y1, -1, _P) if one == other else (y2 - y1) * pow(x2 - x1, -1, _P)
    x = (slope * slope - x1 - x2) % _P
    return x, (slope * (x1 - x) - y1) % _P


def _multiply(scalar: int) -> _Point:
    """A multiple of the base point."""
    total, power = None, _BASE
    for place in range(scalar.bit_length()):
        if scalar >> place & 1:
            total = _add(total, power)
        power = cast("_Point", _add(power, power))
    assert total is not None
    return total


def _encode_point(secret: int) -> bytes:
    x, y = _multiply(secret)
    return b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")


def _sign(secret: int, message: bytes) -> bytes:
    """An ECDSA signature of a message, as DER."""
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = _draw_scalar()
        r = _multiply(nonce)[0] % _ORDER
        s = pow(nonce, -1, _ORDER) * (digest + r * secret) % _ORDER
        if r and s:
            return _sequence(_integer(r), _integer(s))


# X.509 (RFC 5280) in DER


def _der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    length = bytes([size]) if size < 128 else bytes([0x80 | len(digits)]) + digits
    return bytes([tag]) + length + content


def _sequence(*parts: bytes) -> bytes:
    return _der(0x30, *parts)


def _integer(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes, unused: int = 0) -> bytes:
    return _der(0x03, bytes([unused]), content)


def _oid(text: str) -> bytes:
    first, second, *rest = map(int, text.split("."))
    out = bytes([40 * first + second])
    for number in rest:
        digits = [number & 127]
        while number := number >> 7:
            digits.insert(0, 128 | number & 127)
        out += bytes(digits)
    return _der(0x06, out)


_EC_KEY, _P256, _ECDSA_SHA256 = (
    _oid("1.2.840.10045.2.1"),
    _oid("1.2.840.10045.3.1.7"),
    _oid("1.2.840.10045.4.3.2"),
)


def _encode_key(secret: int) -> bytes:
    """The secret key, as RFC 5915 writes it."""
    public = _der(0xA1, _bits(_encode_point(secret)))
    return _sequence(_integer(1), _der(0x04, secret.to_bytes(32, "big")), _der(0xA0, _P256), public)


def _sign_certificate(secret: int, now: datetime) -> bytes:
    """A certificate for localhost that vouches for itself, and for nothing else."""
    public = _encode_point(secret)
    identity = hashlib.sha1(public, usedforsecurity=False).digest()
    name = _sequence(_der(0x31, _sequence(_oid("2.5.4.3"), _der(0x0C, b"hubbub on this machine"))))
    ends = [now - timedelta(hours=1), now + timedelta(days=_DAYS)]
    moments = [_der(0x17, f"{each:%y%m%d%H%M%SZ}".encode()) for each in ends]
    addresses = [ipaddress.ip_address(each).packed for each in ("127.0.0.1", "::1")]
    is_critical = _der(0x01, b"\xff")
    extensions = [
        (
            _oid("2.5.29.17"),
            b"",
            _sequence(_der(0x82, b"localhost"), *(_der(0x87, each) for each in addresses)),
        ),
        (_oid("2.5.29.19"), is_critical, _sequence(_der(0x01, b"\xff"), _integer(0))),  # signs itself alone
        (_oid("2.5.29.15"), is_critical, _bits(b"\x84", 2)),  # digital signature, certificate signing
        (_oid("2.5.29.37"), b"", _sequence(_oid("1.3.6.1.5.5.7.3.1"))),  # of a server
        (_oid("2.5.29.14"), b"", _der(0x04, identity)),
        (_oid("2.5.29.35"), b"", _sequence(_der(0x80, identity))),
    ]
    listed = [_sequence(kind, mark, _der(0x04, value)) for kind, mark, value in extensions]
    body = _sequence(
        _der(0xA0, _integer(2)),  # version 3
        _integer(int.from_bytes(random_bytes(16), "big") >> 1 | 1),
        _sequence(_ECDSA_SHA256),
        name,
        _sequence(*moments),
        name,
        _sequence(_sequence(_EC_KEY, _P256), _bits(public)),
        _der(0xA3, _sequence(*listed)),
    )
    return _sequence(body, _sequence(_ECDSA_SHA256), _bits(_sign(secret, body)))


def _encode_pem(kind: str, content: bytes) -> bytes:
    lines = base64.encodebytes(content)
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (kind.encode(), lines, kind.encode())
