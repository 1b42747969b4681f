"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side, with stored verifiers.

Somebody unknown is asked for a password like anybody else: the verifier of a name that is not known is made
up by `auth`, takes the same time, and fails where a wrong password does.
"""

import base64
import binascii
import hashlib
import hmac

from hubbub.noise.entropy import random_bytes
from hubbub.server.auth import ScramVerifier
from hubbub.server.pgwire.messages import WireError

__all__ = ["Exchange"]

_NONCE_BYTES = 18


class Exchange:
    """One attempt to sign in: `challenge`, then `verify`.

    Args:
        verifier: The stored verifier, or the made-up one of an unknown name.
    """

    def __init__(self, verifier: ScramVerifier) -> None:
        self._verifier = verifier
        self._nonce = _encode(random_bytes(_NONCE_BYTES))
        self._first = self._answer = self._header = ""

    def challenge(self, message: bytes) -> bytes:
        """Return the server's first message for the client's.

        The name in it is ignored, as in PostgreSQL: the start-up packet has one.
        """
        flag, _, rest = _text(message).partition(",")
        name, _, bare = rest.partition(",")
        fields = bare.split(",")
        has_fields = len(fields) >= 2 and fields[0].startswith("n=") and fields[1].startswith("r=")
        if flag not in {"n", "y"} or name or not has_fields:
            raise _malformed()
        nonce = fields[1].removeprefix("r=")
        if not nonce or not all("!" <= sign <= "~" for sign in nonce):
            raise _malformed()
        self._header, self._first = f"{flag},,", bare
        salt = _encode(self._verifier.salt)
        self._answer = f"r={nonce}{self._nonce},s={salt},i={self._verifier.iterations}"
        return self._answer.encode()

    def verify(self, message: bytes) -> bytes | None:
        """Return the server's last message, or None if the password is wrong."""
        unsigned, _, proof = _text(message).rpartition(",p=")
        binding, _, nonce = unsigned.partition(",r=")
        if binding != f"c={_encode(self._header.encode())}" or f"r={nonce}" != self._answer.partition(",")[0]:
            raise _malformed()
        signed = f"{self._first},{self._answer},{unsigned}".encode()
        signature = _sign(self._verifier.stored_key, signed)
        try:
            key = bytes(a ^ b for a, b in zip(_decode(proof), signature, strict=True))
        except (ValueError, binascii.Error):
            raise _malformed() from None
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(_sign(self._verifier.server_key, signed))


def _malformed() -> WireError:
    return WireError("08P01", "a message of the SCRAM exchange is malformed", is_fatal=True)


def _text(message: bytes) -> str:
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed() from None


def _sign(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii"), validate=True)
