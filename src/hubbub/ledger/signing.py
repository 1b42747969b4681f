"""The owner's keys: a signature on the head of a ledger, and a seal or a mark on what was released.

Signatures are Ed25519's: who has the public key can check one, and cannot make one. Seals are
ChaCha20-Poly1305's, bound to the line of the charge. Both need the extra `hubbub[keys]`. What is not sealed
is marked by HMAC-SHA256, with a key that the process with the rows makes and keeps in a file.

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

from hubbub.errors import InvalidInput, LedgerFailed
from hubbub.noise.entropy import random_bytes
from hubbub.output_files import protect_paths

__all__ = ["Head", "Seal", "check_signature", "new_secret", "new_signing_key", "sign_head"]

_HEAD = "hubbub head/1"
_SEALED = "sealed/1 "
_MARKED = "marked/1 "
_KEY_BYTES = 32


@dataclass(frozen=True)
class Head:
    """What an owner signs: so many lines, and the digest of the last."""

    entries: int
    digest: str
    moment: str

    def text(self) -> bytes:
        """The bytes that are signed."""
        return json.dumps([_HEAD, self.entries, self.digest, self.moment], separators=(",", ":")).encode()


def new_signing_key(path: str | Path) -> None:
    """Write a new private key, which only its owner can read, and beside it the public one, as FILE.pub."""
    _library()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write(Path(path), private)
    _write(Path(f"{path}.pub"), public)


def sign_head(head: Head, key: str | Path) -> str:
    """A head with the owner's signature, as JSON, to be kept or published elsewhere."""
    _library()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    found = _loaded(key, lambda text: serialization.load_pem_private_key(text, password=None))
    if not isinstance(found, Ed25519PrivateKey):
        raise _no_key("a private key")
    signature = base64.b64encode(found.sign(head.text())).decode()
    return json.dumps(
        {
            "format": _HEAD,
            "entries": head.entries,
            "head": head.digest,
            "moment": head.moment,
            "signature": signature,
        }
    )


def check_signature(text: str, public: str | Path) -> Head:
    """The head that was signed, if the signature is that of this public key.

    Guarantee: an error unless who had the private key signed just this.
    Assumes: Ed25519 cannot be forged, and the private key is the owner's alone.
    Proof: docs/proofs/ledger.md, "Tamper evidence"
    """
    _library()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    found = _loaded(public, serialization.load_pem_public_key)
    if not isinstance(found, Ed25519PublicKey):
        raise _no_key("a public key")
    try:
        stated = json.loads(text)
        head = Head(stated["entries"], stated["head"], stated["moment"])
        if stated["format"] != _HEAD:
            raise ValueError  # noqa: TRY301 - one way out for whatever is wrong
        found.verify(base64.b64decode(stated["signature"], validate=True), head.text())
    except (InvalidSignature, KeyError, TypeError, ValueError):
        raise InvalidInput(
            "the signature is not this key's",
            why="what it says may be somebody else's word",
            fix="give the signed head as it was written, and the public key of who signed it",
        ) from None
    return head


def new_secret(path: str | Path) -> None:
    """Write a new secret, with which releases can be sealed, and which only its owner can read."""
    _library()
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    _write(Path(path), base64.b64encode(ChaCha20Poly1305.generate_key()) + b"\n")


class Seal:
    """What seals or marks releases before they are stored, and knows them again: by a secret, or by a key.

    The key is in a file of its own (mode 0600), made when the first release is stored.

    Guarantee: `opened` gives a text only if `closed` made it with this secret or key, for just this line.
    Assumes: nobody else has them, and neither HMAC-SHA256 nor ChaCha20-Poly1305 can be forged.
    Proof: docs/proofs/ledger.md, "Tamper evidence"
    """

    def __init__(self, secret: str | Path | None = None, key: Path | None = None) -> None:
        self._cipher: Any = None
        self.key = key
        """Where the key is kept; the store knows."""
        if secret is not None:
            _library()
            from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

            self._cipher = _loaded(
                secret, lambda text: ChaCha20Poly1305(base64.b64decode(text.strip(), validate=True))
            )

    @property
    def is_open(self) -> bool:
        """Whether there is no secret."""
        return self._cipher is None

    @staticmethod
    def is_on(stored: str) -> bool:
        """Whether what is stored begins as what is sealed does."""
        return stored.startswith(_SEALED)

    def closed(self, text: str, line: str) -> str:
        """The text as it is stored, for the line with this digest."""
        if self._cipher is None:
            return f"{_MARKED}{_mark(self._known_key() or self._new_key(), text, line)} {text}"
        nonce = random_bytes(12)
        hidden = nonce + self._cipher.encrypt(nonce, text.encode(), line.encode())
        return _SEALED + base64.b64encode(hidden).decode()

    def opened(self, stored: str, line: str) -> str | None:
        """The text that was stored for the line with this digest; None where somebody else wrote it."""
        if not stored.startswith(_SEALED):
            return self._unmarked(stored, line) if self._cipher is None else None
        try:
            hidden = base64.b64decode(stored.removeprefix(_SEALED), validate=True)
            text: bytes = self._cipher.decrypt(hidden[:12], hidden[12:], line.encode())
            return text.decode()
        except Exception:  # noqa: BLE001 - whatever it is, there is no answer
            raise LedgerFailed(
                "the release is sealed with another secret",
                why="its owner chose that only who has the secret can read it",
                fix="open the ledger with the secret: Ledger.open(…, secret=…), or secret in hubbub.toml",
            ) from None

    def check(self) -> None:
        """Raise, before anything is charged, where what comes out could not be sealed or marked."""
        if self._cipher is None:
            self._known_key() or self._new_key()

    def _unmarked(self, stored: str, line: str) -> str | None:
        key = self._known_key()
        mark, _, text = stored.removeprefix(_MARKED).partition(" ")
        if key is None or not stored.startswith(_MARKED) or not mark.isascii():
            return None
        return text if hmac.compare_digest(mark, _mark(key, text, line)) else None

    def _known_key(self) -> bytes | None:
        if self.key is None or not os.path.lexists(self.key):
            return None
        protect_paths(self.key)
        try:
            found = base64.b64decode(self.key.read_bytes().strip(), validate=True)
        except (OSError, ValueError):
            found = b""
        if len(found) != _KEY_BYTES:
            raise LedgerFailed(
                f"the key that marks what is released cannot be read: {self.key.name}",
                why="without it what was released cannot be told from what somebody made up",
                fix="put it back from a backup, and see that you may read it; or remove it: a new one is "
                "made, and what was released before is charged anew when it is asked again",
            )
        return found

    def _new_key(self) -> bytes:
        """Made whole beside its place, then put there: of two who make one at once, one key is used."""
        if self.key is None:
            raise LedgerFailed(
                "there is no place for the key that marks what is released",
                why="it is never kept in the database, and the system knows no home of this user",
                fix="set XDG_CONFIG_HOME to a folder that is kept",
            )
        made = None
        try:
            self.key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened, name = tempfile.mkstemp(prefix=f".{self.key.name}.", dir=self.key.parent)  # mode 0600
            made = Path(name)
            with os.fdopen(opened, "wb") as file:
                file.write(base64.b64encode(random_bytes(_KEY_BYTES)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(made, self.key)
        except OSError as problem:
            raise _not_written(problem) from None
        finally:
            if made is not None:
                made.unlink(missing_ok=True)
        found = self._known_key()
        if found is None:
            raise _no_key("a key")
        return found


def _mark(key: bytes, text: str, line: str) -> str:
    return hmac.new(key, f"{line} {text}".encode(), "sha256").hexdigest()


def _library() -> None:
    try:
        import cryptography  # noqa: F401 - whether it is there
    except ImportError:
        raise InvalidInput(
            "cryptography is not installed", why="it signs and seals", fix="pip install hubbub[keys]"
        ) from None


def _loaded(path: str | Path, read: Callable[[bytes], Any]) -> Any:
    protect_paths(path)
    try:
        return read(Path(path).read_bytes())
    except (OSError, ValueError, TypeError, binascii.Error):
        raise _no_key("a key") from None


def _no_key(what: str) -> InvalidInput:
    return InvalidInput(
        f"the file is not {what}",
        why="without it nothing can be signed, checked or sealed",
        fix="make one with: hubbub ledger key FILE",
    )


def _write(path: Path, content: bytes) -> None:
    try:
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise _not_written(problem) from None


def _not_written(problem: OSError) -> InvalidInput:
    return InvalidInput(
        "the key cannot be written",
        why=(problem.strerror or "the system refused").lower(),
        fix="give the path of a file that is not there yet, in a folder that can be written",
    )
