"""Keys: the signature on a ledger's head, and the seal (encryption or HMAC) on each release.

Signatures are Ed25519: the public key checks one, and cannot make one. With a secret, releases are encrypted
with ChaCha20-Poly1305, bound to the entry of the charge. Both need the extra `hubbub[keys]`. Without a
secret, releases are authenticated by HMAC-SHA256, with a key file that the process with the rows creates.

Proof: docs/proofs/ledger.md, "Tamper evidence"
"""

import base64
import binascii
import hmac
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubbub.accounting.codec import canonical_json
from hubbub.errors import InvalidInput, LedgerFailed
from hubbub.noise.entropy import random_bytes
from hubbub.output_files import protect_paths

__all__ = [
    "Head",
    "Seal",
    "check_signature",
    "check_text_signature",
    "new_secret",
    "new_signing_key",
    "sign_head",
    "sign_text",
]

_HEAD = "hubbub head/1"
_LABEL = b"hubbub label/2 "
"""What is signed for one purpose is not valid for another."""
_ENCRYPTED = "encrypted/1 "
_AUTHENTICATED = "hmac/1 "
_KEY_BYTES = 32


@dataclass(frozen=True)
class Head:
    """What an owner signs: the number of entries, and the digest of the last one."""

    entries: int
    digest: str
    timestamp: str

    def signed_bytes(self) -> bytes:
        """Return the bytes that are signed."""
        return canonical_json([_HEAD, self.entries, self.digest, self.timestamp]).encode()


def new_signing_key(path: str | Path) -> None:
    """Write a new private key, readable by its owner only, and the public key beside it as FILE.pub."""
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write_new(Path(path), private)
    _write_new(Path(f"{path}.pub"), public)


def sign_head(head: Head, key: str | Path) -> str:
    """Return a head with the owner's signature, as JSON, to be stored or published elsewhere."""
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = _load_key(key, lambda text: serialization.load_pem_private_key(text, password=None))
    if not isinstance(private, Ed25519PrivateKey):
        raise _key_error("a private key")
    signature = base64.b64encode(private.sign(head.signed_bytes())).decode()
    return json.dumps(
        {
            "format": _HEAD,
            "entries": head.entries,
            "head": head.digest,
            "timestamp": head.timestamp,
            "signature": signature,
        }
    )


def check_signature(text: str, public_key: str | Path) -> Head:
    """Return the signed head if the signature belongs to this public key; raise otherwise.

    Guarantee: a head is returned only if the holder of the private key signed exactly this head.
    Assumes: Ed25519 cannot be forged, and only the owner has the private key.
    Proof: docs/proofs/ledger.md, "Tamper evidence"
    """
    _require_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = _load_key(public_key, serialization.load_pem_public_key)
    if not isinstance(public, Ed25519PublicKey):
        raise _key_error("a public key")
    try:
        stated = json.loads(text)
        head = Head(stated["entries"], stated["head"], stated["timestamp"])
        if stated["format"] != _HEAD:
            raise ValueError  # noqa: TRY301 - one error for all causes
        public.verify(base64.b64decode(stated["signature"], validate=True), head.signed_bytes())
    except (InvalidSignature, KeyError, TypeError, ValueError):
        raise InvalidInput(
            "the signature does not match this public key",
            why="the head may have been signed by somebody else, or changed",
            fix="pass the signed head unchanged, and the public key of its signer",
        ) from None
    return head


def sign_text(text: str, key: str | Path) -> dict[str, str]:
    """Return the signature of a text by an owner's private key, with the public key that checks it."""
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = _load_key(key, lambda stored: serialization.load_pem_private_key(stored, password=None))
    if not isinstance(private, Ed25519PrivateKey):
        raise _key_error("a private key")
    raw = private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return {
        "algorithm": "Ed25519",
        "public_key": base64.b64encode(raw).decode(),
        "signature": base64.b64encode(private.sign(_LABEL + text.encode())).decode(),
    }


def check_text_signature(text: str, signed: Any, public_key: str | Path | None = None) -> str:
    """Return the public key, in base64, if a signature by `sign_text` is of this text; raise otherwise.

    Args:
        text: the text.
        signed: what `sign_text` returned; it is not trusted.
        public_key: the path of the signer's public key; if omitted, the one beside the signature.

    Guarantee: it returns only if the holder of the private key of that public key signed exactly this text.
    Assumes: Ed25519 cannot be forged.
    Proof: docs/proofs/ledger.md, "Tamper evidence"
    """
    _require_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        raw = base64.b64decode(signed["public_key"], validate=True)
        public = Ed25519PublicKey.from_public_bytes(raw)
        if set(signed) != {"algorithm", "public_key", "signature"} or signed["algorithm"] != "Ed25519":
            raise ValueError  # noqa: TRY301 - one error for all causes
        if public_key is not None:
            known = _load_key(public_key, serialization.load_pem_public_key)
            if not isinstance(known, Ed25519PublicKey) or known != public:
                raise ValueError  # noqa: TRY301
        public.verify(base64.b64decode(signed["signature"], validate=True), _LABEL + text.encode())
    except (InvalidSignature, KeyError, TypeError, ValueError, AttributeError):
        raise InvalidInput(
            "the signature does not match this text and this key",
            why="it may have been signed by somebody else, or changed",
            fix="get the label again from its owner",
        ) from None
    return str(signed["public_key"])


def new_secret(path: str | Path) -> None:
    """Write a new secret for encrypting releases, readable by its owner only."""
    _require_cryptography()
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    _write_new(Path(path), base64.b64encode(ChaCha20Poly1305.generate_key()) + b"\n")


class Seal:
    """Protects stored releases: encrypts them with a secret, or else authenticates them with a key.

    The key is in a file of its own (mode 0600), created when the first release is stored.

    Guarantee: `unseal` returns a text only if `seal` made it with this secret or key, for the same entry.
    Assumes: nobody else has the secret or key; neither HMAC-SHA256 nor ChaCha20-Poly1305 can be forged.
    Proof: docs/proofs/ledger.md, "Tamper evidence"
    """

    def __init__(self, secret: str | Path | None = None, key_path: Path | None = None) -> None:
        self._cipher: Any = None
        self.key_path = key_path
        """The path of the HMAC key; the store knows it."""
        if secret is not None:
            _require_cryptography()
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

            self._cipher = _load_key(
                secret, lambda text: ChaCha20Poly1305(base64.b64decode(text.strip(), validate=True))
            )

    @property
    def has_secret(self) -> bool:
        """True if releases are encrypted."""
        return self._cipher is not None

    @staticmethod
    def is_encrypted(stored: str) -> bool:
        """Return whether a stored release is encrypted, by its first characters."""
        return stored.startswith(_ENCRYPTED)

    def seal(self, text: str, entry_digest: str) -> str:
        """Return the text as it is stored for the entry with this digest."""
        if self._cipher is None:
            key = self._read_key() or self._create_key()
            return f"{_AUTHENTICATED}{_compute_hmac(key, text, entry_digest)} {text}"
        nonce = random_bytes(12)
        ciphertext = nonce + self._cipher.encrypt(nonce, text.encode(), entry_digest.encode())
        return _ENCRYPTED + base64.b64encode(ciphertext).decode()

    def unseal(self, stored: str, entry_digest: str) -> str | None:
        """Return the text that was stored for the entry with this digest; None if it was planted."""
        if not stored.startswith(_ENCRYPTED):
            return self._unseal_hmac(stored, entry_digest) if self._cipher is None else None
        try:
            ciphertext = base64.b64decode(stored.removeprefix(_ENCRYPTED), validate=True)
            text: bytes = self._cipher.decrypt(ciphertext[:12], ciphertext[12:], entry_digest.encode())
            return text.decode()
        except Exception:  # noqa: BLE001 - whatever it is, there is no answer
            raise LedgerFailed(
                "the release is encrypted with another secret",
                why="it can be read with that secret only",
                fix="open the ledger with the secret: Ledger.open(…, secret=…), or secret in hubbub.toml",
            ) from None

    def check(self) -> None:
        """Raise, before anything is charged, if a release could not be sealed."""
        if self._cipher is None:
            self._read_key() or self._create_key()

    def _unseal_hmac(self, stored: str, entry_digest: str) -> str | None:
        key = self._read_key()
        tag, _, text = stored.removeprefix(_AUTHENTICATED).partition(" ")
        if key is None or not stored.startswith(_AUTHENTICATED) or not tag.isascii():
            return None
        return text if hmac.compare_digest(tag, _compute_hmac(key, text, entry_digest)) else None

    def _read_key(self) -> bytes | None:
        if self.key_path is None or not os.path.lexists(self.key_path):
            return None
        protect_paths(self.key_path)
        try:
            key_bytes = base64.b64decode(self.key_path.read_bytes().strip(), validate=True)
        except (OSError, ValueError):
            key_bytes = b""
        if len(key_bytes) != _KEY_BYTES:
            raise LedgerFailed(
                f"the key that authenticates releases cannot be read: {self.key_path.name}",
                why="without it a release cannot be told from a planted one",
                fix="put it back from a backup, and check its permissions; or remove it: a new one is "
                "created, and earlier questions are charged again when they are asked again",
            )
        return key_bytes

    def _create_key(self) -> bytes:
        """Write it under another name and link it into place: of two concurrent writers, one key is used."""
        if self.key_path is None:
            raise LedgerFailed(
                "there is no folder for the key that authenticates releases",
                why="it is never stored in the database, and this user has no home folder",
                fix="set XDG_CONFIG_HOME to a permanent folder",
            )
        temporary = None
        try:
            self.key_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(
                prefix=f".{self.key_path.name}.", dir=self.key_path.parent
            )  # mode 0600
            temporary = Path(name)
            with os.fdopen(descriptor, "wb") as file:
                file.write(base64.b64encode(random_bytes(_KEY_BYTES)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(temporary, self.key_path)
        except OSError as problem:
            raise _write_error(problem) from None
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
        key_bytes = self._read_key()
        if key_bytes is None:
            raise _key_error("a key")
        return key_bytes


def _compute_hmac(key: bytes, text: str, entry_digest: str) -> str:
    return hmac.new(key, f"{entry_digest} {text}".encode(), "sha256").hexdigest()


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401 - only checks that it is installed
    except ImportError:
        raise InvalidInput(
            "cryptography is not installed",
            why="it signs heads and encrypts releases",
            fix="pip install hubbub[keys]",
        ) from None


def _load_key(path: str | Path, read: Callable[[bytes], Any]) -> Any:
    try:
        protect_paths(path)
        return read(Path(path).read_bytes())
    except (OSError, ValueError, TypeError, binascii.Error):
        raise _key_error("a key") from None


def _key_error(what: str) -> InvalidInput:
    return InvalidInput(
        f"the file is not {what}",
        why="a key is needed to sign, check or encrypt",
        fix="make one with: hubbub ledger key FILE",
    )


def _write_new(path: Path, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise _write_error(problem) from None


def _write_error(problem: OSError) -> InvalidInput:
    return InvalidInput(
        "the key cannot be written",
        why=(problem.strerror or "the system refused").lower(),
        fix="pass the path of a new file in a writable folder",
    )
