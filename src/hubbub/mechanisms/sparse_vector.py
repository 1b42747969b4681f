"""The sparse vector technique: which of many queries are above a threshold, paying only for those that are.

Queries come one after another, each chosen in the light of the answers before. However many are below,
the price is the same; after the agreed number of answers "above" the session halts for ever.

Proof: docs/proofs/threshold.md
"""

import os
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from threading import Lock
from typing import Any, ClassVar, NoReturn, Self, final

import numpy as np

from hubbub.accounting import Account, PrivacyLoss, Receipt, parse_spendable_epsilon
from hubbub.errors import Halted, InvalidInput, Refused, Unsupported
from hubbub.mechanisms.error_bounds import smallest_integer
from hubbub.mechanisms.mechanism import (
    Mechanism,
    check_integer_sensitivity,
    check_monotone,
    check_scores,
    check_sensitivity,
    laplace_difference_tail,
    noisy,
    released,
)
from hubbub.noise import MAX_SCALE, discrete_laplace
from hubbub.noise.enclosures import exp_neg, log
from hubbub.numbers import Number, parse_integer, parse_positive, parse_probability, parse_rational, round_up
from hubbub.release import Release
from hubbub.sensitivity import Bounded, Sensitivity, unwrap
from hubbub.unit import Unit

__all__ = ["AboveThreshold", "Session"]


@final
@dataclass(frozen=True)
class AboveThreshold(Mechanism):
    """Noise on the threshold, fresh noise on every query, and only whether the one reaches the other.

    For `answers` = c > 1 it starts again after every "above" but the last, with ε/c each time.

    >>> mechanism = AboveThreshold.of(sensitivity=1, epsilon=1, threshold=1000)
    >>> session = mechanism.open()
    >>> session.ask(10), session.ask(5000)
    (False, True)
    >>> session.ask(10)
    Traceback (most recent call last):
    ...
    hubbub.errors.Halted: the session has given its last answer: ...
    >>> mechanism.release([10, 20, 5000, 30]).value
    2
    >>> print(mechanism)
    Above 1000? Until 1 answer is yes; Laplace noise of scale 2 on the threshold, 4 on each integer query,
    which one unit moves by at most 1: ε = 1

    Guarantee: ε-differential privacy of all answers together, however many queries are asked.
    Assumes: between neighbours each query moves by at most Δ (monotone: all of them the same way, or
        not at all); uniform random bits.
    Proof: docs/proofs/threshold.md
    """

    sensitivity: Sensitivity
    """How far one unit can move one query; of a list, its ℓ∞ counts."""
    epsilon: Fraction
    threshold: int
    monotone: bool = False
    """Whether adding a unit lowers no query: the word of whoever makes the mechanism."""
    answers: int = 1
    """How many queries may be answered "above" before it halts."""

    kind: ClassVar[str] = "above-threshold/1"
    error_kind: ClassVar[str] = "regret"

    def __post_init__(self) -> None:
        check_integer_sensitivity(self.sensitivity, self.monotone)
        object.__setattr__(self, "epsilon", parse_positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "answers", parse_integer(self.answers, "answers"))
        bar = parse_rational(self.threshold, "threshold")
        if bar.denominator != 1:
            raise InvalidInput(
                "the threshold is not a whole number",
                why="the queries are integers, so it lies between two of them",
                fix="round it up: the same integers are at or above it",
            )
        object.__setattr__(self, "threshold", bar.numerator)
        if self.query_scale > MAX_SCALE:
            raise Unsupported(
                "the noise is wider than 2^48",
                why="beyond that the law would no longer be exact in 64 bits",
                fix="measure in larger units, or choose a larger epsilon or fewer answers",
            )

    @classmethod
    def of(
        cls,
        *,
        sensitivity: Sensitivity | Number,
        epsilon: Number,
        threshold: int,
        monotone: bool = False,
        answers: int = 1,
        allow_large_epsilon: bool = False,
    ) -> Self:
        """The mechanism with this ε in all, for integer queries that one unit moves by `sensitivity`."""
        wanted = parse_spendable_epsilon(epsilon, allow=allow_large_epsilon)
        return cls(Sensitivity.of(sensitivity), wanted, threshold, monotone, answers)

    @property
    def threshold_scale(self) -> Fraction:
        """The scale of the noise on the threshold: 2Δ/ε, times the number of answers."""
        return 2 * self.sensitivity.linf * self.answers / self.epsilon

    @property
    def query_scale(self) -> Fraction:
        """The scale of the noise on a query: 4Δ/ε (monotone: 2Δ/ε), times the number of answers."""
        return self.threshold_scale * (1 if self.monotone else 2)

    def loss(self) -> PrivacyLoss:
        """Pure ε, for all answers."""
        return PrivacyLoss.pure(self.epsilon)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """How far on the wrong side an answer may be, among `coordinates` queries, with this confidence.

        With this m, every query answered "above" is at least threshold − m, every other one at most
        threshold + m, also where a query was chosen in the light of the answers before.

        >>> AboveThreshold.of(sensitivity=1, epsilon=1, threshold=0).error(0.95, coordinates=100)
        32
        """
        allowed = 1 - parse_probability(confidence, "confidence")
        # A query meets one of the noisy thresholds, and may be off to either side.
        ways = 2 * self.answers * parse_integer(coordinates, "coordinates")
        # survives: How many spare bits are carried is free: what is rounded up from one more or
        # less is still a bound.
        bits = 192 + ways.bit_length() + allowed.denominator.bit_length()
        rate = 1 / self.query_scale
        if self.monotone:
            # survives: A bound rounded up from an irrational number does not meet a rational
            # one.
            return smallest_integer(lambda m: ways * laplace_difference_tail(rate, m + 1, bits) <= allowed)
        # Pr[X − Y ≥ c] ≤ q^c·(1+q)/(1+q+q²) where Y has half the scale of X.
        low, high = (Fraction(end, 1 << bits) for end in exp_neg(rate, bits))
        odds = ways * (1 + high) / (1 + low + low**2) / allowed
        return ceil(Fraction(log(odds, bits)[1], 1 << bits) / rate) - 1

    def open(self, account: Account | None = None, *, unit: Unit | None = None) -> "Session":
        """Begin a session, charged whole to the account before anything is drawn or asked."""
        protected = Unit.row() if unit is None else unit
        if not isinstance(protected, Unit):
            raise InvalidInput(
                f"the unit is of type {type(unit).__name__}",
                why="nobody could say who is protected",
                fix="pass a Unit, such as Unit.row()",
            )
        check_monotone(protected, monotone=self.monotone)
        receipt = None if account is None else account.charge(self.to_json(), self.loss(), unit=protected)
        return Session(self, protected, receipt)

    def release(self, value: Any) -> Release:
        """Ask a list of queries in turn: the index of the first one above, or None where none was.

        Where there may be several answers, the list of all indices answered "above".
        """
        bounded, queries = check_scores(value, self.sensitivity, monotone=self.monotone)
        shown = noisy(queries, self.query_scale)
        found: list[int] = []
        for _ in range(self.answers):
            start = found[-1] + 1 if found else 0
            reached = np.flatnonzero(shown[start:] >= self._bar())
            if not reached.size:
                break
            found.append(start + int(reached[0]))
        said: int | list[int] | None = found if self.answers > 1 else next(iter(found), None)
        return released(self, said, bounded, monotone=self.monotone)

    def _bar(self) -> int:
        """A fresh noisy threshold."""
        return self.threshold + discrete_laplace(self.threshold_scale)

    def __str__(self) -> str:
        count = "1 answer is" if self.answers == 1 else f"{self.answers} answers are"
        scales = f"{round_up(self.threshold_scale):.6g} on the threshold, {round_up(self.query_scale):.6g}"
        moves = "raises, if at all," if self.monotone else "moves"
        return (
            f"Above {self.threshold}? Until {count} yes; Laplace noise of scale {scales} on each "
            f"integer query, which one unit {moves} by at most {self.sensitivity.linf}: {self.loss()}"
        )


@final
class Session:
    """An opened `AboveThreshold`: ask until it halts.

    Its noisy threshold serves until the next answer "above", so there is never a second copy of it: a
    session cannot be copied or pickled, nor used in a forked process; opening another draws and costs
    afresh. Threads may share it.

    Guarantee: all answers together cost the mechanism's loss, charged when it was opened with an account.
    Assumes: as `AboveThreshold`; that nobody reads its private fields.
    Proof: docs/proofs/threshold.md
    """

    __slots__ = ("_lock", "_process", "_state", "mechanism", "receipt", "unit", "user_asserted")

    def __init__(self, mechanism: AboveThreshold, unit: Unit, receipt: Receipt | None) -> None:
        self.mechanism = mechanism
        self.unit = unit
        self.receipt = receipt
        """What the account gave for the charge; None where there was no account."""
        self.user_asserted = mechanism.monotone
        """Whether any answer so far rests on a person's word: a bare query, or monotone ones."""
        # The noisy threshold and how many answers are left: one field, so that they change at once.
        self._state = (mechanism._bar(), mechanism.answers)  # noqa: SLF001 - the mechanism at work
        self._lock = Lock()
        self._process = os.getpid()

    @property
    def answers_left(self) -> int:
        """How many queries may still be answered "above": known to whoever has seen the answers."""
        return self._state[1]

    def ask(self, value: Bounded | int) -> bool:
        """Whether the value is above the threshold, with noise on both; raises `Halted` after the last.

        A Bounded value must be of the session's own unit; a bare integer is one whose sensitivity the
        caller asserts.
        """
        query = self._checked(value)
        if os.getpid() != self._process:
            raise Refused(
                "the session was opened in another process",
                why="two processes with the same noisy threshold would give more answers than were paid for",
                fix="open a session in this process",
            )
        with self._lock:
            bar, left = self._state
            if left == 0:
                raise Halted(
                    "the session has given its last answer",
                    why="one more would not be covered by what was charged",
                    fix="open another session, which is charged anew",
                )
            # All that is random is drawn before the answer is known: no failure can tell it.
            noise = discrete_laplace(self.mechanism.query_scale)
            fresh = self.mechanism._bar()  # noqa: SLF001
            above = query + noise >= bar
            if above:
                self._state = (fresh, left - 1)
            return above

    def _checked(self, value: Any) -> int:
        if not isinstance(value, Bounded):
            value = Bounded.user_asserted(value, self.mechanism.sensitivity, self.unit)
        bounded = check_sensitivity(value, self.mechanism.sensitivity, "linf")
        if bounded.unit != self.unit:
            raise Refused(
                f"the value protects {bounded.unit}, the session {self.unit}",
                why="what was charged was charged for the session's unit",
                fix="open the session with unit=value.unit",
            )
        if bounded.is_user_asserted:  # only ever set, so that no thread undoes what another has said
            self.user_asserted = True
        exact = unwrap(bounded)
        if not isinstance(exact, int):
            raise InvalidInput(
                "the query is not one integer",
                why="queries are asked one at a time, and only integers are compared exactly",
                fix="ask each number by itself, scaled to an integer by a public factor",
            )
        return exact

    def __reduce__(self) -> NoReturn:
        raise Refused(
            "a session cannot be copied or pickled",
            why="two copies of one noisy threshold would give more answers than were paid for",
            fix="open another session, which is charged anew",
        )

    def __repr__(self) -> str:
        return f"Session({self.answers_left} of {self.mechanism.answers} answers left; {self.mechanism})"
