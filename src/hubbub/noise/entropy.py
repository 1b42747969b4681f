"""The only source of random bits: OpenSSL's generator, through the standard library.

OpenSSL has one generator per thread, seeded by the operating system, and reseeds it after a fork, so
no thread and no child process repeats a stream.
"""

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hubbub.errors import Refused

__all__ = ["random_bits", "random_bytes"]

Source = Callable[[int], bytes]

# survives: Smaller parts fit a C int as well.
_MAX_BYTES = 1 << 30
"""OpenSSL counts bytes in a C int."""

# The private door: tests replay chosen bits through it, in their own context only.
_injected: ContextVar[Source | None] = ContextVar("hubbub_injected_bits", default=None)


def random_bytes(count: int) -> bytes:
    """Return fresh cryptographic random bytes.

    >>> len(random_bytes(16))
    16
    """
    source = _injected.get()
    if source is not None:
        return source(count)
    try:
        # survives: Only a shortcut: one part, joined, is the same bytes.
        if count <= _MAX_BYTES:
            return ssl.RAND_bytes(count)
        starts = range(0, count, _MAX_BYTES)
        return b"".join(ssl.RAND_bytes(min(_MAX_BYTES, count - start)) for start in starts)
    except ssl.SSLError:
        raise Refused(
            "the system's random generator failed",
            why="without fresh random bits nothing is hidden",
            fix="check that the operating system's entropy source works, then try again",
        ) from None


def random_bits(count: int) -> int:
    """Return a uniform integer of `count` bits, where `count` is a multiple of 8.

    >>> 0 <= random_bits(64) < 2**64
    True
    """
    return int.from_bytes(random_bytes(count >> 3), "big")


@contextmanager
def _inject_bits(source: Source) -> Iterator[None]:
    """Replace the generator by `source` within this context; for tests only."""
    token = _injected.set(source)
    try:
        yield
    finally:
        _injected.reset(token)
