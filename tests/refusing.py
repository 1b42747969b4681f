"""Errors of ours are sentences: they say what, why and how to fix it, each beginning in lower case."""

from contextlib import contextmanager

import pytest


def refusal(kind, call, *arguments, **options):
    """The error that a call ends in; it says what, why and how to fix it."""
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    assert caught.value.what
    assert caught.value.why
    assert caught.value.fix
    return caught.value


@contextmanager
def refused(kind, match=None):
    """Like pytest.raises, for errors of our tree; it checks that they are written as ours are."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    for part in (caught.value.what, caught.value.why, caught.value.fix):
        assert part
        # SQL's own words are in capitals.
        assert part.startswith("NaN") or part[0] == part[0].lower() or part.split()[0].isupper()
        assert not part.endswith((".", "X"))
