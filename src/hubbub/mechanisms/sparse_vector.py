"""The sparse vector technique: report which of many queries are above a threshold, and pay for these alone.

Queries come one after another, and each may depend on the answers before. Answers "below" are free; after a
fixed number of answers "above" the session halts for good.

Proof: docs/proofs/sparse-vector.md
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
from hubbub.mechanisms.mechanism import (
    Mechanism,
    add_laplace_noise,
    check_integer_sensitivity,
    check_monotone,
    check_scores,
    check_sensitivity,
    computed_once,
    laplace_difference_tail,
    make_release,
)
from hubbub.mechanisms.noise_tails import smallest_integer
from hubbub.noise import MAX_SCALE, discrete_laplace
from hubbub.noise.enclosures import exp_neg, log
from hubbub.numbers import Number, format_up, parse_integer, parse_positive, parse_probability, parse_rational
from hubbub.release import Release
from hubbub.sensitivity import Bounded, Sensitivity, unwrap
from hubbub.unit import Unit

__all__ = ["AboveThreshold", "Session"]


@final
@dataclass(frozen=True, repr=False)
class AboveThreshold(Mechanism):
    """AboveThreshold: noise on the threshold and on every query, and only the comparison is released.

    For `answers` = c > 1 it restarts after every "above" but the last, with ε/c each time.

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
    Above threshold 1000, until 1 query is; Laplace noise of scale 2 on the threshold and 4 on each integer
    query that one unit moves by at most 1: ε = 1

    Guarantee: ε-differential privacy of all answers together, for any number of queries.
    Assumes: between neighbours each query moves by at most Δ (monotone: all in one direction); uniform random
        bits.
    Proof: docs/proofs/sparse-vector.md
    """

    sensitivity: Sensitivity
    """The largest move of one query by one unit; for a list its ℓ∞ norm counts."""
    epsilon: Fraction
    threshold: int
    monotone: bool = False
    """True if adding a unit never lowers a query: user-asserted."""
    answers: int = 1
    """The number of queries that may be answered "above" before it halts."""

    kind: ClassVar[str] = "above-threshold/1"
    error_kind: ClassVar[str] = "regret"

    def __post_init__(self) -> None:
        check_integer_sensitivity(self.sensitivity, self.monotone)
        object.__setattr__(self, "epsilon", parse_positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "answers", parse_integer(self.answers, "answers"))
        threshold = parse_rational(self.threshold, "threshold")
        if threshold.denominator != 1:
            raise InvalidInput(
                "the threshold is not a whole number",
                why="queries are integers, so it lies between two of them",
                fix="round it up: the same integers reach it",
            )
        object.__setattr__(self, "threshold", threshold.numerator)
        if self.query_scale > MAX_SCALE:
            raise Unsupported(
                "the noise is wider than 2^48",
                why="its law would no longer be exact in 64 bits",
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
        """Make the mechanism with this total ε.

        Args:
            sensitivity: how far one unit can move one query.
            epsilon: the ε of all answers together.
            threshold: the integer that queries are compared with.
            monotone: true if adding a unit never lowers a query; it halves the noise on queries.
            answers: the number of answers "above" before it halts.
            allow_large_epsilon: confirms a large ε, as for `Budget`.
        """
        price = parse_spendable_epsilon(epsilon, allow=allow_large_epsilon)
        return cls(Sensitivity.of(sensitivity), price, threshold, monotone, answers)

    @property
    def threshold_scale(self) -> Fraction:
        """The scale of the noise on the threshold: 2Δ·answers/ε."""
        return 2 * self.sensitivity.linf * self.answers / self.epsilon

    @property
    def query_scale(self) -> Fraction:
        """The scale of the noise on a query: 4Δ·answers/ε, or half of it for monotone queries."""
        return self.threshold_scale * (1 if self.monotone else 2)

    @computed_once
    def loss(self) -> PrivacyLoss:
        """Return the loss of all answers: pure ε."""
        return PrivacyLoss.pure(self.epsilon)

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> float:
        """Return a bound m on how far a query may be on the wrong side of the threshold.

        Among `coordinates` queries, every one answered "above" is at least threshold − m and every other
        one at most threshold + m, with this confidence and also for adaptive queries.

        >>> AboveThreshold.of(sensitivity=1, epsilon=1, threshold=0).error(0.95, coordinates=100)
        32
        """
        allowed = 1 - parse_probability(confidence, "confidence")
        # A query meets one of the noisy thresholds, and may err to either side.
        events = 2 * self.answers * parse_integer(coordinates, "coordinates")
        # survives: How many spare bits are carried is free: what is rounded up from one more or
        # less is still a bound.
        bits = 192 + events.bit_length() + allowed.denominator.bit_length()
        rate = 1 / self.query_scale
        if self.monotone:
            # survives: A bound rounded up from an irrational number does not meet a rational
            # one.
            return smallest_integer(lambda m: events * laplace_difference_tail(rate, m + 1, bits) <= allowed)
        # Pr[X − Y ≥ c] ≤ q^c·(1+q)/(1+q+q²) where Y has half the scale of X.
        low, high = (Fraction(end, 1 << bits) for end in exp_neg(rate, bits))
        odds = events * (1 + high) / (1 + low + low**2) / allowed
        return ceil(Fraction(log(odds, bits)[1], 1 << bits) / rate) - 1

    def open(self, account: Account | None = None, *, unit: Unit | None = None) -> "Session":
        """Open a session. Its whole loss is charged to the account before anything is drawn.

        Args:
            account: the account that pays, or None to charge nothing.
            unit: who is protected; one row, added or removed, if omitted.
        """
        protected = Unit.row() if unit is None else unit
        if not isinstance(protected, Unit):
            raise InvalidInput(
                f"the unit is of type {type(unit).__name__}",
                why="it defines who is protected",
                fix="pass a Unit, such as Unit.row()",
            )
        check_monotone(protected, monotone=self.monotone)
        receipt = None if account is None else account.charge(self.to_json(), self.loss(), unit=protected)
        return Session(self, protected, receipt)

    def release(self, value: Any) -> Release:
        """Ask a list of queries in turn, and release the index of the first one above, or None.

        With `answers` above 1, release the list of all indices above.
        """
        bounded, queries = check_scores(value, self.sensitivity, monotone=self.monotone)
        noisy = add_laplace_noise(queries, self.query_scale)
        above: list[int] = []
        for _ in range(self.answers):
            start = above[-1] + 1 if above else 0
            reached = np.flatnonzero(noisy[start:] >= self._draw_threshold())
            if not reached.size:
                break
            above.append(start + int(reached[0]))
        answer: int | list[int] | None = above if self.answers > 1 else next(iter(above), None)
        return make_release(self, answer, bounded, monotone=self.monotone)

    def _draw_threshold(self) -> int:
        """Draw a fresh noisy threshold."""
        return self.threshold + discrete_laplace(self.threshold_scale)

    def __str__(self) -> str:
        count = "1 query is" if self.answers == 1 else f"{self.answers} queries are"
        scales = f"{format_up(self.threshold_scale)} on the threshold and {format_up(self.query_scale)}"
        moves = "raises" if self.monotone else "moves"
        return (
            f"Above threshold {self.threshold}, until {count}; Laplace noise of scale {scales} on each "
            f"integer query that one unit {moves} by at most {format_up(self.sensitivity.linf)}: "
            f"{self.loss()}"
        )


@final
class Session:
    """An open `AboveThreshold`: ask until it halts.

    A noisy threshold may be used only until the next answer "above", so there must never be a second copy
    of it: a session cannot be copied, pickled or used in a forked process. Threads may share it.

    Guarantee: all answers together cost the mechanism's loss, which was charged when the session was opened.
    Assumes: the same as `AboveThreshold`; nobody reads its private fields.
    Proof: docs/proofs/sparse-vector.md
    """

    __slots__ = ("_lock", "_process", "_state", "mechanism", "receipt", "unit", "user_asserted")

    def __init__(self, mechanism: AboveThreshold, unit: Unit, receipt: Receipt | None) -> None:
        self.mechanism = mechanism
        self.unit = unit
        self.receipt = receipt
        """The account's receipt, or None without an account."""
        self.user_asserted = mechanism.monotone
        """True if some answer so far rests on a user-asserted sensitivity or on monotone queries."""
        # The noisy threshold and the answers left: one field, so that they change atomically.
        self._state = (mechanism._draw_threshold(), mechanism.answers)  # noqa: SLF001 - the mechanism at work
        self._lock = Lock()
        self._process = os.getpid()

    @property
    def answers_left(self) -> int:
        """The number of answers "above" left. It follows from the answers so far."""
        return self._state[1]

    def ask(self, value: Bounded | int) -> bool:
        """Return whether the noisy value reaches the noisy threshold; raise `Halted` after the last answer.

        Args:
            value: a Bounded integer of the session's unit, or an integer with user-asserted sensitivity.
        """
        query = self._check_query(value)
        if os.getpid() != self._process:
            raise Refused(
                "the session was opened in another process",
                why="two processes with one noisy threshold would give more answers than were charged",
                fix="open a session in this process",
            )
        with self._lock:
            threshold, left = self._state
            if left == 0:
                raise Halted(
                    "the session has given its last answer",
                    why="the charge does not cover another one",
                    fix="open another session, which is charged again",
                )
            # All randomness is drawn before the answer is known, so that no failure depends on it.
            noise = discrete_laplace(self.mechanism.query_scale)
            fresh = self.mechanism._draw_threshold()  # noqa: SLF001
            above = query + noise >= threshold
            if above:
                self._state = (fresh, left - 1)
            return above

    def _check_query(self, value: Any) -> int:
        if not isinstance(value, Bounded):
            value = Bounded.user_asserted(value, self.mechanism.sensitivity, self.unit)
        bounded = check_sensitivity(value, self.mechanism.sensitivity, "linf")
        if bounded.unit != self.unit:
            raise Refused(
                f"the value protects {bounded.unit}, the session {self.unit}",
                why="the session was charged for its own unit",
                fix="open the session with unit=value.unit",
            )
        if bounded.is_user_asserted:  # only ever set, so that no thread undoes what another has answer
            self.user_asserted = True
        exact = unwrap(bounded)
        if not isinstance(exact, int):
            raise InvalidInput(
                "the query is not one integer",
                why="queries are asked one at a time, and only integers are compared exactly",
                fix="ask one number at a time, scaled to an integer by a public factor",
            )
        return exact

    def __reduce__(self) -> NoReturn:
        raise Refused(
            "a session cannot be copied or pickled",
            why="two copies of one noisy threshold would give more answers than were charged",
            fix="open another session, which is charged again",
        )

    def __repr__(self) -> str:
        return f"Session({self.answers_left} of {self.mechanism.answers} answers left; {self.mechanism})"
