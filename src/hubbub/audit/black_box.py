"""Audit a black box: draw on neighbouring inputs, and bet on events that were seen before."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.audit.betting import Bet, Constraints, choose_bet
from hubbub.audit.claims import Claim
from hubbub.audit.finding import Audit, Witness
from hubbub.audit.neighbours import InputPair, RowDomain, edge_pairs, make_random_pairs
from hubbub.audit.outcomes import Outcomes
from hubbub.audit.scores import NumberScore, Score, learn_categories, learn_score, make_number_score
from hubbub.audit.subjects import Subject, draw_both, make_subject
from hubbub.audit.tradeoff import ThresholdTests, lower_hull
from hubbub.errors import InvalidInput
from hubbub.numbers import Number, parse_integer, parse_nonnegative, parse_probability
from hubbub.unit import Neighbours

__all__ = ["audit"]

Floats = NDArray[np.float64]

_FIRST_BATCH = 32
_GROWTH, _LATE_GROWTH, _LATE = 0.2, 0.4, 50_000
"""A batch is this share of the draws on its pair so far, a larger one after `_LATE` draws."""
_EXPLORED = 0.2
"""The share of samples on other pairs than the leading one."""
_MAX_HISTORY = 100_000
_MAX_NUMBERS = 6_000_000
"""Events are chosen on the latest draws on each input; arrays are limited by the count of their numbers.
Stakes on a rare event are as good as the number of times that it was seen."""
_MAX_SEARCHED = 50_000
_MAX_RECORDS = 8000
"""Scores are compared on at most this many; fewer where answers are not numbers."""
_STRATEGIES = (
    (0, 0, 0.64),
    (0, 20_000, 0.03),
    (1, 0, 0.17),
    (1, 2000, 0.03),
    (1, 20_000, 0.04),
    (1, 100_000, 0.03),
    (2, 0, 0.02),
    (2, 10_000, 0.02),
    (2, 50_000, 0.02),
)
"""Parts of the capital: what is bet on (the answer's first number, the best score, the best learned one),
after how many samples, and the share. What early bets on noise lose, a part that starts later does not."""
_SELECTED = 4.0
"""How much the best of many scores gains by chance, as `overfit` of a bet."""
_CURVE_STARTS = (128, 4096, 65_536)
"""After how many draws on a pair the tests of the trade-off curve are fixed, and fixed anew."""
_CURVE_TESTS = 24
_PLAIN = 1.08
"""How much weaker evidence may be that people can read; and in a witness: """
_READABLE = 1.6
_OVERFIT = 1.0
_ROUNDING = 1e-6
"""Capital is summed in doubles; it must exceed its bound by more than their error."""


def audit(
    subject: Any,
    *,
    epsilon: Number | None = None,
    delta: Number = 0,
    claim: Claim | None = None,
    rows: str | RowDomain = "0:1",
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    pairs: Sequence[InputPair | tuple[Any, Any]] | None = None,
    beyond_bounds: bool = False,
    random_pairs: int = 0,
    samples: int = 100_000,
    confidence: Number = 0.95,
    stop_early: bool = True,
    times: bool = False,
    batch: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Search for evidence that a subject does not keep its claim, and bound its ε from below.

    Args:
        subject: A function of a database, a `Mechanism`, or an object with `draw(database, count)`.
        epsilon: ε of the claim.
        delta: δ of the claim.
        claim: Another claim instead, such as `Claim.zcdp(0.5)`.
        rows: The rows that one person may have: "0:1", "int:0:120" or "red,green,blue".
        neighbours: How neighbouring databases differ.
        pairs: Neighbouring databases to try instead of those at the edges of `rows`.
        beyond_bounds: Also try rows outside `rows`: not-a-number, infinities, overflow.
        random_pairs: Also try this many random pairs of neighbouring databases.
        samples: The most answers to draw, on all inputs together.
        confidence: The probability with which the lower bound holds.
        stop_early: Stop soon after the claim is refuted; otherwise draw all samples for a sharper bound.
        times: Also look at how long answers take, on this machine. Then a fair coin says of each answer which
            database it is on.
        batch: The function takes (database, count) and returns an array of independent answers.
        progress: Called with the number of samples drawn so far.

    >>> from hubbub import Laplace
    >>> audit(Laplace.of(sensitivity=1, epsilon=1), epsilon=1, rows="int:0:1", samples=2000).refuted
    False
    >>> audit(Laplace.of(sensitivity=1, epsilon=4), epsilon=1, rows="int:0:1", samples=20_000).refuted
    True

    Guarantee: if the claim holds, `refuted` is true with probability at most 1 − confidence, whenever the
        audit stops; and so is a `lower` bound above the truth.
    Assumes: each answer satisfies the claim given all earlier ones; independent answers do.
    Proof: docs/proofs/sequential-audit.md
    """
    tested = _make_claim(claim, epsilon, delta)
    level = float(parse_probability(confidence, "confidence"))
    budget = parse_integer(samples, "samples", minimum=4 * _FIRST_BATCH)
    domain = RowDomain.parse(rows) if isinstance(rows, str) else rows
    inputs = (
        edge_pairs(domain, neighbours, beyond_bounds=beyond_bounds)
        if pairs is None
        else [pair if isinstance(pair, InputPair) else InputPair(*pair) for pair in pairs]
    )
    inputs += make_random_pairs(domain, neighbours, parse_integer(random_pairs, "random_pairs", minimum=0))
    if not inputs:
        raise InvalidInput(
            "there are no pairs", why="there is nothing to compare", fix="pass one pair or more"
        )
    run = _Run(make_subject(subject, times=times, batch=batch), tested, inputs, 1 - level)
    return run.finish(budget, stop_early=stop_early, progress=progress)


def _make_claim(claim: Claim | None, epsilon: Number | None, delta: Number) -> Claim:
    if (claim is None) == (epsilon is None):
        raise InvalidInput(
            "neither or both of {epsilon} and claim are given",
            why="an audit tests one claim",
            fix="give exactly one of them",
        )
    if claim is not None:
        return claim
    assert epsilon is not None
    return Claim.approximate(
        float(parse_nonnegative(epsilon, "epsilon")), float(parse_nonnegative(delta, "delta"))
    )


@dataclass
class _PairState:
    """The draws on one pair of inputs, and what was learned from them."""

    inputs: InputPair
    x: Outcomes | None = None
    y: Outcomes | None = None
    draws: int = 0
    reach: float = -1.0
    """The largest number of the claim's kind that past draws speak against."""
    searched_at: int = 0
    candidates: list[str] = field(default_factory=list)
    tests: list[ThresholdTests] = field(default_factory=list)
    gain: float = 0.0
    """The capital won against the claim on this pair, in nats."""

    def add(self, x: Outcomes, y: Outcomes) -> None:
        self.draws += (len(x) + len(y)) // 2
        self.x, self.y = (
            new if old is None else Outcomes.join([old, new]).take(slice(-_history(new), None))
            for old, new in ((self.x, x), (self.y, y))
        )


def _history(outcomes: Outcomes) -> int:
    """The number of draws on an input that are stored."""
    if outcomes.array is None:
        return _MAX_HISTORY
    return max(_MAX_HISTORY, _MAX_NUMBERS // max(1, outcomes.array[:1].size))


class _Run:
    def __init__(self, subject: Subject, claim: Claim, pairs: list[InputPair], failure: float) -> None:
        self.subject, self.claim, self.failure = subject, claim, failure
        self.pairs = [_PairState(pair) for pair in pairs]
        self.grid = claim.grid()
        self.constraints = claim.constraints(self.grid)
        self.place = int(np.searchsorted(self.grid, claim.value))
        coarse = np.unique(
            np.clip(
                self.place + np.array([-90, -60, -40, -25, -15, -8, 0, 10, 25, 50]), 0, self.grid.size - 1
            )
        )
        self.coarse, self.coarse_place = coarse, int(np.searchsorted(coarse, self.place))
        self.coarse_constraints = Constraints(
            self.constraints.epsilon[coarse], self.constraints.delta[coarse]
        )
        self.log_wealth = np.zeros((len(_STRATEGIES), self.grid.size))
        self.peak = np.zeros(self.grid.size)
        self.samples = 0
        self.errors: set[str] | None = set()
        """Kinds of errors, while nothing else was ever answered."""
        self.started = time.perf_counter()

    # The bound

    @property
    def refuted(self) -> NDArray[np.bool_]:
        """Which numbers of the grid are refuted, together with all smaller ones."""
        needed = math.log(1 / self.failure) + _ROUNDING
        crossed = self.peak >= needed
        refuted: NDArray[np.bool_] = np.logical_and.accumulate(crossed)
        return refuted

    def _update(self, pair: _PairState, x: Outcomes, y: Outcomes) -> None:
        """Settle the bets on new draws."""
        for kind, (score, bet) in enumerate(self._bets(pair)):
            if score is None or bet is None or bet.is_neutral:
                continue
            gain = bet.log_gain(score(x), score(y))
            for place, (what, start, _) in enumerate(_STRATEGIES):
                if what == kind and self.samples >= start:
                    self.log_wealth[place] += gain
            if kind == 1:
                pair.gain += float(gain[self.place])
        weighted = self.log_wealth + np.log([share for _, _, share in _STRATEGIES])[:, None]
        top = weighted.max(axis=0)
        self.peak = np.maximum(self.peak, top + np.log(np.exp(weighted - top).sum(axis=0)))

    # Bets

    def _bets(self, pair: _PairState) -> list[tuple[Score | None, Bet | None]]:
        """Choose a bet for each part of the capital, from past draws alone."""
        if pair.x is None or pair.y is None:
            return []
        bets: list[tuple[Score | None, Bet | None]] = []
        first: Score | None = NumberScore(f"value {pair.x.paths[0]}") if pair.x.paths else None
        bets.append(self._bet_on(first, pair.x, pair.y, _OVERFIT))
        best, learned = self._search(pair)
        x, y = self._recent(pair)
        for score, half in (best, learned):
            if score == first:
                bets.append(bets[0])
            elif half:
                # Only draws that the score was not learned from.
                bets.append(self._bet_on(score, _newer(x), _newer(y), _SELECTED))
            else:
                bets.append(self._bet_on(score, pair.x, pair.y, _SELECTED))
        return bets

    def _bet_on(
        self, score: Score | None, x: Outcomes, y: Outcomes, overfit: float
    ) -> tuple[Score | None, Bet | None]:
        if score is None:
            return None, None
        return score, choose_bet(score(x), score(y), self.constraints, overfit)

    @staticmethod
    def _recent(pair: _PairState) -> tuple[Outcomes, Outcomes]:
        """The draws that scores are learned from and compared on."""
        assert pair.x is not None
        assert pair.y is not None
        most = _MAX_SEARCHED if pair.x.array is not None else _MAX_RECORDS
        return pair.x.take(slice(-most, None)), pair.y.take(slice(-most, None))

    def _search(
        self, pair: _PairState, plain: float = _PLAIN
    ) -> tuple[tuple[Score | None, bool], tuple[Score | None, bool]]:
        """Return the best score of all and the best learned one, each with whether it needs unseen draws.

        A number is preferred to a category by the factor `plain`, and a category to a learned score: people
        can read them. A learned score is compared, and bet on, by draws that it was not learned from.
        """
        x, y = self._recent(pair)
        everything = pair.draws >= 1.6 * pair.searched_at
        names = _column_names(x, y) if everything else pair.candidates
        numbers: list[Score] = [make_number_score(name, x, y) for name in names if not _is_learned(name)]
        older = _older(x), _older(y)
        encoded = [learn_categories(name, *older) for name in names if _is_category(name)]
        categories = [score for score in encoded if score is not None]
        learned: list[Score] = list(categories)
        if everything or "learned" in names:
            fitted = learn_score(*older, tuple(categories[:6]))
            learned += [fitted] if fitted is not None else []
        ranked = [(*self._strength(score, x, y), False, score) for score in numbers]
        ranked += [(*self._strength(score, _newer(x), _newer(y)), True, score) for score in learned]
        if not ranked:
            pair.reach = 0.0
            return (None, False), (None, False)
        ranked.sort(key=lambda entry: (entry[0] * plain ** _ease(entry[3].name), entry[1]), reverse=True)
        pair.reach = ranked[0][1]
        if everything:
            pair.searched_at = pair.draws
            pair.candidates = [entry[3].name for entry in ranked[:4]]
            pair.candidates += [entry[3].name for entry in ranked if entry[2]][:1]
        best = ranked[0]
        behind = next((entry for entry in ranked if entry[2]), None)
        return (best[3], best[2]), (None, False) if behind is None else (behind[3], True)

    def _strength(self, score: Score, x: Outcomes, y: Outcomes) -> tuple[float, float]:
        """Return the evidence against the claim, per draw, and the largest number with any against it."""
        bet = choose_bet(score(x), score(y), self.coarse_constraints, _SELECTED)
        against = float(bet.log_likelihood[self.coarse_place]) / max(1, len(x))
        reached = np.flatnonzero(bet.log_likelihood > 1)
        return against, float(self.grid[self.coarse[reached[-1]]]) if reached.size else 0.0

    # Draws

    def _choose_pair(self) -> _PairState:
        """Most draws go to the pair with the most evidence, a share to the one with the fewest draws."""
        leader = max(self.pairs, key=lambda pair: (pair.reach, pair.draws))
        elsewhere = self.samples - 2 * leader.draws
        if leader.draws and elsewhere <= _EXPLORED * self.samples and len(self.pairs) > 1:
            return min((pair for pair in self.pairs if pair is not leader), key=lambda pair: pair.draws)
        return leader

    def _step(self, budget: int) -> None:
        pair = self._choose_pair()
        size = max(_FIRST_BATCH, int((_GROWTH if pair.draws < _LATE else _LATE_GROWTH) * pair.draws))
        size = max(1, min(size, (budget - self.samples) // 2))
        x, y = draw_both(self.subject, pair.inputs.x, pair.inputs.x_prime, size)
        self.samples += 2 * size
        kinds = x.failures(), y.failures()
        self.errors = self.errors | kinds[0] | kinds[1] if self.errors is not None and all(kinds) else None
        if pair.draws:
            self._update(pair, x, y)
            for tests in pair.tests:
                tests.add(tests.score(x), tests.score(y))
        pair.add(x, y)
        if len(pair.tests) < len(_CURVE_STARTS) and pair.draws >= _CURVE_STARTS[len(pair.tests)]:
            self._fix_tests(pair)

    def _fix_tests(self, pair: _PairState) -> None:
        """Fix the tests of the trade-off curve for the draws to come."""
        assert pair.x is not None
        assert pair.y is not None
        (score, _), (learned, _) = self._search(pair)
        if score is not None and score.name == "seconds":
            # Such a test has one chance at all draws; that of a time drifts.
            score = learned
        if score is None:
            return
        pooled = np.sort(np.concatenate([score(pair.x), score(pair.y)]))
        pooled = pooled[~np.isnan(pooled)]
        if pooled.size:
            share = np.concatenate(
                [np.linspace(0.03, 0.97, _CURVE_TESTS - 6), [0.003, 0.01, 0.02, 0.98, 0.99, 0.997]]
            )
            cuts = np.unique(pooled[(share * (pooled.size - 1)).astype(np.int64)])
            failure = self.failure / len(self.pairs) / len(_CURVE_STARTS)
            pair.tests.append(ThresholdTests(score, cuts, failure))

    def finish(self, budget: int, *, stop_early: bool, progress: Callable[[int], None] | None) -> Audit:
        """Draw until the budget is used, or until the claim is refuted and as much again."""
        end = budget
        while self.samples + 2 <= end:
            self._step(end)
            if progress is not None:
                progress(self.samples)
            if stop_early and end == budget and self.refuted[self.place]:
                end = min(budget, 2 * self.samples)
                self.found_at: int | None = self.samples
        if self.errors and not self.refuted[self.place]:
            raise InvalidInput(
                f"the subject fails on every database ({', '.join(sorted(self.errors))})",
                why="from errors alone, no leak could be found in any mechanism",
                fix="call it once by hand: a function takes a list of rows, a command reads one row per line",
            )
        return self._report()

    # The report

    def _report(self) -> Audit:
        refuted = self.refuted
        lower = float(self.grid[np.flatnonzero(refuted)[-1]]) if refuted.any() else 0.0
        leader = max(
            self.pairs,
            key=lambda pair: (pair.gain > 0, pair.gain if pair.gain > 0 else pair.reach, pair.draws),
        )
        place = self.place if refuted[self.place] else int(np.searchsorted(self.grid, lower))
        points = [point for pair in self.pairs for tests in pair.tests for point in tests.points()]
        return Audit(
            subject=self.subject.name,
            symbol=self.claim.symbol,
            claimed=self.claim.value,
            at=self.claim.at,
            lower=lower,
            confidence=1 - self.failure,
            refuted=bool(refuted[self.place]),
            samples=self.samples,
            samples_to_refute=getattr(self, "found_at", None),
            log_e_value=float(self.peak[self.place]),
            pairs_tried=sum(pair.draws > 0 for pair in self.pairs),
            pairs_given=len(self.pairs),
            seconds=time.perf_counter() - self.started,
            witness=self._witness(leader, place),
            tradeoff=tuple(lower_hull(points)),
            claim=self.claim,
        )

    def _witness(self, pair: _PairState, place: int) -> Witness | None:
        """The event on the leading pair: chosen on older draws, with its frequencies on the newer ones."""
        if pair.x is None or pair.y is None or len(pair.x) < 8:
            return None
        older = _PairState(pair.inputs, _older(pair.x), _older(pair.y), len(pair.x) // 2)
        (score, half), _ = self._search(older, _READABLE)
        if score is None or older.x is None or older.y is None:
            return None
        recent = self._recent(older)
        x, y = (older.x, older.y) if not half else (_newer(recent[0]), _newer(recent[1]))
        bet = choose_bet(score(x), score(y), self.constraints)
        new_x, new_y = _newer(pair.x), _newer(pair.y)
        fresh = min(len(new_x), len(new_y))
        if not fresh:
            return None
        return Witness.of(pair.inputs, score, bet, place, score(new_x)[:fresh], score(new_y)[:fresh])


def _older(outcomes: Outcomes) -> Outcomes:
    return outcomes.take(slice(None, len(outcomes) // 2))


def _newer(outcomes: Outcomes) -> Outcomes:
    return outcomes.take(slice(len(outcomes) // 2, None))


def _ease(name: str) -> float:
    """How easily people read events of a score."""
    kind = name.partition(" ")[0]
    return {"learned": 0.0, "shape": 1.5, "text": 1.5, "value": 2.0, "sum": 1.5, "max": 1.5}.get(kind, 1.0)


def _is_category(name: str) -> bool:
    return name.partition(" ")[0] in {"atom", "answer", "shape", "text", "order", "equal", "parity"}


def _is_learned(name: str) -> bool:
    return _is_category(name) or name == "learned"


def _column_names(x: Outcomes, y: Outcomes) -> list[str]:
    """The columns of both samples: one of them may have shapes that the other never has."""
    names = [*x.numeric_names(), *y.numeric_names(), *x.category_names(), *y.category_names()]
    return list(dict.fromkeys(names))
