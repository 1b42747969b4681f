"""The way that was chosen for a model, for as long as the model does what it did when it was looked at.

Proof: docs/proofs/dpsgd.md, "Every step is the one that was looked at"
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from hubbub.learn.gradients import Found, OneByOne, Recorded, Way
from hubbub.learn.program import Drifting

__all__ = ["Looked"]

_OFTEN = 4
"""A model that is something else more often than this is differentiated one example after another."""


class Looked(Way):
    """A way that is left, and chosen again, where the model does something else than it was chosen for.

    A model that now mixes examples is refused, as it would have been before the run. Where made-up examples
    are still treated as before, examples are computed one after another from then on.
    """

    def __init__(self, way: Way, again: Callable[[], Way]) -> None:
        super().__init__(way.objective, way.parameters, way.name)
        self.way = way
        self._again = again
        self._looks = 0
        self._is_new = False

    @property
    def is_alone(self) -> bool:
        """As `Way`."""
        return self.way.is_alone

    def begin(self) -> None:
        """As `Way`."""
        self._is_new = False
        self.way.begin()

    @property
    def has_moved(self) -> bool:
        """As `Way`."""
        return self._is_new or self.way.has_moved

    def gradients(self, batch: Sequence[Tensor], weights: Tensor) -> Found:
        """As `Way`."""
        return self.way.gradients(batch, weights)

    def change(self, *, within: bool) -> None:
        """As `Way`: look again, at what the model does now, on made-up examples.

        Within a lot it must still do to these what it did: the lot's first examples were computed so.
        """
        self._looks += 1
        found = self._again() if self._looks <= _OFTEN else self.way
        is_same = _program(found) == _program(self.way)
        if within and not is_same:
            raise Drifting
        if not found.is_alone and is_same:
            found = OneByOne(self.objective, self.parameters, f"{OneByOne.name} (it changes as it goes)")
        self.way, self.name, self._is_new = found, found.name, True


def _program(way: Way) -> object:
    return type(way), way.program if isinstance(way, Recorded) else None
