"""Errors of ours are sentences: they say what, why and how to mend it, each beginning in lower case."""

from contextlib import contextmanager

import pytest


@contextmanager
def refused(kind, match=None):
    """Like pytest.raises, for errors of our tree; it checks that they are written as ours are."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    for part in (caught.value.what, caught.value.why, caught.value.fix):
        assert part
        assert part.startswith("NaN") or part[0] == part[0].lower()
        assert not part.endswith((".", "X"))
