"""The result of an audit: a lower bound, the event behind it, its blind spots, and a chart of both laws."""

import html
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.audit.betting import Bet
from hubbub.audit.claims import Claim
from hubbub.audit.neighbours import InputPair
from hubbub.audit.scores import Score
from hubbub.audit.tradeoff import TradeoffPoint, probability_bounds
from hubbub.errors import InvalidInput
from hubbub.numbers import format_down, format_percent, format_up
from hubbub.report.charts import Axis, Frame

__all__ = ["Audit", "Witness", "draw_laws", "plain"]

Floats = NDArray[np.float64]
_BARS = 40


@dataclass(frozen=True)
class Witness:
    """An event and its frequencies on two neighbouring inputs, from draws after it was chosen."""

    inputs: InputPair
    event: str
    probability_x: float
    probability_x_prime: float
    draws: int
    score: str
    """The column or score that the event is a half-line of."""
    threshold: float
    above: bool
    scored_by: Score
    histogram: tuple[tuple[float, float, float], ...]
    """The two laws of the score: (middle of a bar, share on x, share on x′)."""

    def __repr__(self) -> str:
        x, x_prime = self.probability_x, self.probability_x_prime
        return f"Witness({self.event}: {x:.4g} on x, {x_prime:.4g} on x′, {self.draws:,} draws each)"

    @classmethod
    def of(  # noqa: PLR0917 - as they are at hand
        cls, inputs: InputPair, score: Score, bet: Bet, place: int, x: Floats, y: Floats
    ) -> "Witness":
        """Take the half-line with the higher stake.

        Args:
            inputs: the two neighbouring inputs.
            score: the column or score of the event.
            bet: the bets on half-lines of all scores.
            place: the place of this score among them.
            x: fresh scores on the first input.
            y: fresh scores on the second one.
        """
        null = bet.constraints.posterior[place, bet.pair[place]]
        above = bool(bet.stake_above[place] - null >= bet.stake_below[place] - null)
        threshold = float(bet.above[place] if above else bet.below[place])
        in_x, in_y = ((scores > threshold) if above else (scores <= threshold) for scores in (x, y))
        return cls(
            inputs,
            score.describe(threshold, above=above),
            float(in_x.mean()),
            float(in_y.mean()),
            x.size,
            score.name,
            threshold,
            above,
            score,
            _histogram(x, y),
        )

    def probability_bounds(self, confidence: float) -> tuple[list[float], list[float]]:
        """Lower and upper bounds of this event's probabilities on x and x′, from its fresh draws.

        Guarantee: both hold at once with this confidence.
        Proof: docs/proofs/sequential-audit.md
        """
        failure = (1 - confidence) / 2
        hits = np.array(
            [round(self.probability_x * self.draws), round(self.probability_x_prime * self.draws)]
        )
        low, high = probability_bounds(hits, self.draws, failure)
        return low.tolist(), high.tolist()


def _histogram(x: Floats, y: Floats) -> tuple[tuple[float, float, float], ...]:
    pooled = np.concatenate([x, y])
    pooled = pooled[np.isfinite(pooled)]
    if not pooled.size:
        return ()
    low, high = np.quantile(pooled, [0.005, 0.995])
    if not low < high:
        low, high = low - 0.5, low + 0.5
    edges = np.linspace(low, high, _BARS + 1)
    bars = []
    for scores in (x, y):
        finite = np.clip(scores[np.isfinite(scores)], low, high)
        bars.append(np.histogram(finite, edges)[0] / max(1, scores.size))
    middles = (edges[:-1] + edges[1:]) / 2
    return tuple(zip(middles.tolist(), bars[0].tolist(), bars[1].tolist(), strict=True))


@dataclass(frozen=True)
class Audit:
    """The result of an audit of a black box."""

    subject: str
    symbol: str
    """The bounded parameter: ε, δ, ρ, μ or τ."""
    claimed: float
    at: str
    lower: float
    """A lower bound of it that holds with this confidence."""
    confidence: float
    refuted: bool
    """True if the claim does not hold, with this confidence."""
    samples: int
    samples_to_refute: int | None
    """After how many samples the claim was refuted."""
    log_e_value: float
    """The logarithm of the largest evidence against the claim."""
    pairs_tried: int
    pairs_given: int
    seconds: float
    witness: Witness | None
    tradeoff: tuple[TradeoffPoint, ...]
    """Corners of a line that the trade-off curve of the subject lies on or below, with this confidence."""
    claim: Claim

    def delta_lower(self, epsilon: float) -> float:
        """Return a lower bound of δ at ε, from the trade-off curve.

        Guarantee: holds for all ε at once, with the audit's confidence.
        Proof: docs/proofs/sequential-audit.md
        """
        return max(0.0, *(1 - beta - math.exp(epsilon) * alpha for alpha, beta in self.tradeoff), 0.0)

    @property
    def blind_spot(self) -> float:
        """Events rarer than this were hardly seen, if at all."""
        return 10 / max(1, self.samples // 2)

    def limitations(self) -> list[str]:
        """Say what the audit cannot see."""
        untried = self.pairs_given - self.pairs_tried
        return [
            f"leaks with a probability below about {self.blind_spot:.1g}",
            f"inputs that were not tried (tried: {_count_pairs(self.pairs_tried)}"
            + (f"; not reached: {untried} more)" if untried else ")"),
            "what depends on earlier calls, or on anything but the database",
        ]

    def _verdict(self) -> str:
        claimed = f"{self.symbol} = {self.claimed:g}{' ' + self.at if self.at else ''}"
        sure = format_percent(round(self.confidence, 12))
        verdict = "VIOLATION" if self.refuted else "no violation found"
        bound = f"{self.symbol} ≥ {format_down(self.lower, 3)}"
        return f"{verdict}: {bound} with {sure} confidence (claimed {claimed})"

    def __repr__(self) -> str:
        return f"Audit({self._verdict()}; {self.samples:,} samples)"

    def __str__(self) -> str:
        lines = [self._verdict()]
        witness = self.witness
        if witness is not None and witness.probability_x == witness.probability_x_prime:
            lines.append("  no outcome that was looked at was more frequent on one input than on the other")
        elif witness is not None:
            lines.append(
                f"  the outcome {witness.event} has probability {witness.probability_x:.4g} on x and "
                f"{witness.probability_x_prime:.4g} on x′ (frequencies in {witness.draws:,} fresh draws each)"
            )
            lines.append(f"  inputs: {witness.inputs}")
        refuted = f", refuted after {self.samples_to_refute:,}" if self.samples_to_refute is not None else ""
        lines.append(
            f"  {self.samples:,} samples on {_count_pairs(self.pairs_tried)} in {self.seconds:.1f} s{refuted}"
        )
        lines.append("It cannot see: " + "; ".join(self.limitations()) + ".")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return the result for programs; all numbers that bound something are rounded outward."""
        witness = None
        if self.witness is not None:
            witness = {
                "x": plain(self.witness.inputs.x),
                "x_prime": plain(self.witness.inputs.x_prime),
                "pair": str(self.witness.inputs),
                "event": self.witness.event,
                "probability_x": self.witness.probability_x,
                "probability_x_prime": self.witness.probability_x_prime,
                "draws": self.witness.draws,
                "score": self.witness.score,
                "threshold": self.witness.threshold,
                "above": self.witness.above,
            }
        return {
            "kind": "audit/1",
            "subject": self.subject,
            "claim": {"symbol": self.symbol, "value": self.claimed, "at": self.at},
            "refuted": self.refuted,
            "lower": float(format_down(self.lower, 6)),
            "confidence": self.confidence,
            "samples": self.samples,
            "samples_to_refute": self.samples_to_refute,
            "log_e_value": self.log_e_value,
            "pairs_tried": self.pairs_tried,
            "witness": witness,
            "tradeoff": [[float(format_up(a)), float(format_up(b))] for a, b in self.tradeoff],
            "cannot_see": self.limitations(),
        }

    def to_json(self) -> str:
        """Return the result as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2) + "\n"


def _count_pairs(number: int) -> str:
    return f"{number} pair{'' if number == 1 else 's'}"


def draw_laws(result: Audit) -> str:
    """Draw the frequencies of the score on x (line) and on x′ (dashes), with the event's threshold."""
    witness = result.witness
    if witness is None or not witness.histogram:
        raise InvalidInput(
            "there is nothing to draw", why="no answer had a number", fix="read the text or the JSON instead"
        )
    bars = witness.histogram
    width = bars[1][0] - bars[0][0]
    most = max(max(x, y) for _, x, y in bars) or 1.0
    frame = Frame(
        "Answers on two neighbouring inputs",
        f"{witness.event}: {witness.probability_x:.4g} on x, {witness.probability_x_prime:.4g} on x′",
        across=Axis(f"score: {witness.score}".strip(), bars[0][0] - width / 2, bars[-1][0] + width / 2),
        up=Axis("share of answers", 0, 1.15 * most),
    )
    on_x = [(at, x) for at, x, _ in bars]
    on_y = [(at, y) for at, _, y in bars]
    first, last = frame.across.low, frame.across.high
    parts = [
        frame.area([(first, 0.0), *on_x, (last, 0.0)]),
        frame.line(on_x, "main"),
        frame.line(on_y, "pale"),
        frame.text(*max(on_x, key=lambda point: point[1]), "x", dx=6, dy=-4),
        frame.text(*max(on_y, key=lambda point: point[1]), "x′", dx=-16, dy=-4),
    ]
    if first <= witness.threshold <= last:
        parts.append(frame.line([(witness.threshold, 0), (witness.threshold, 1.1 * most)], "mark"))
    return frame.render(*parts)


def plain(value: Any) -> Any:
    """Return a database as JSON can hold it: NaN and infinities as texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (int, float, str, bool)) or value is None else repr(value)
