"""Many public keys in few bytes: ten million of twelve letters take 200 MB, where Python takes 750."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import final, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["MANY", "Key", "KeyList", "in_pieces"]

Key = str | float | bool | date | datetime | None
"""A value of a group key: public, as it is shown. None stands for rows without."""
MANY = 1 << 16
"""From so many on, keys are held in a `KeyList`; fewer in a tuple."""


@final
class KeyList(Sequence[Key]):
    """Texts, or numbers, and None among them: each is made when it is looked at.

    >>> keys = KeyList.of([["a", "bcd"], [None, "é"]], are_texts=True)
    >>> len(keys), keys[1], keys[1:], None in keys
    (4, 'bcd', ['bcd', None, 'é'], True)
    >>> list(KeyList.of([[1.0, None]], are_texts=False))
    [1.0, None]
    """

    def __init__(self, held: bytearray, ends: NDArray[np.int64] | None, missing: tuple[int, ...]) -> None:
        self._held = held
        """All texts one behind the other, in UTF-8; or the numbers."""
        self._ends = ends
        """Where each text ends; None for numbers."""
        self._missing = missing
        """The places of None."""

    @classmethod
    def of(cls, pieces: Iterable[Sequence[Key]], *, are_texts: bool) -> "KeyList":
        """Keys that come a piece at a time."""
        held, lengths = bytearray(), [np.empty(0, np.int64)]
        missing: list[int] = []
        count = 0
        for piece in pieces:
            if None in piece:
                missing += [count + place for place, key in enumerate(piece) if key is None]
            count += len(piece)
            if are_texts:
                encoded = [b"" if key is None else str(key).encode() for key in piece]
                lengths.append(np.fromiter(map(len, encoded), np.int64, len(encoded)))
                held += b"".join(encoded)
            else:
                held += np.array([0.0 if key is None else key for key in piece], np.float64).tobytes()
        return cls(held, np.cumsum(np.concatenate(lengths)) if are_texts else None, tuple(missing))

    def __len__(self) -> int:
        return len(self._held) // 8 if self._ends is None else len(self._ends)

    @overload
    def __getitem__(self, place: int) -> Key: ...
    @overload
    def __getitem__(self, place: slice) -> list[Key]: ...
    def __getitem__(self, place: int | slice) -> Key | list[Key]:
        if not isinstance(place, slice):
            at = range(len(self))[place]
            return self[at : at + 1][0]
        start, stop, step = place.indices(len(self))
        assert step == 1
        stop = max(start, stop)
        found: list[Key]
        if self._ends is None:
            found = np.frombuffer(self._held, np.float64)[start:stop].tolist()
        else:
            ends = self._ends[start:stop].tolist()
            begin = int(self._ends[start - 1]) if start else 0
            starts = [begin, *ends][: len(ends)]
            found = [self._held[one:two].decode() for one, two in zip(starts, ends, strict=True)]
        for nothing in self._missing:
            if start <= nothing < stop:
                found[nothing - start] = None
        return found

    def __iter__(self) -> Iterator[Key]:
        for piece in in_pieces(self, MANY):
            yield from piece

    def __contains__(self, key: object) -> bool:
        return bool(self._missing) if key is None else any(own == key for own in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyList) and self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def digest(self) -> str:
        """What stands for all of them, in their order."""
        found = hashlib.sha256(b"numbers" if self._ends is None else self._ends.tobytes())
        found.update(repr(self._missing).encode())
        found.update(self._held)
        return found.hexdigest()

    def is_distinct(self) -> bool:
        """Whether no key is there twice; it takes 8 bytes a key, while a set takes 100."""
        hashes = np.fromiter(map(hash, self), np.int64, len(self))
        hashes.sort()
        # Of different keys a few may have the same hash.
        twice = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        unclear = [key for key in self if hash(key) in twice] if twice else []
        return len(set(unclear)) == len(unclear)


def in_pieces(keys: Sequence[Key], size: int) -> Iterator[Sequence[Key]]:
    """So many at a time."""
    return (keys[start : start + size] for start in range(0, len(keys), size))
