"""Witness files: the event that an audit found, to be replayed on fresh draws by anybody."""

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np

from hubbub.audit.claims import Claim
from hubbub.audit.finding import Audit, Witness, plain
from hubbub.audit.neighbours import InputPair
from hubbub.audit.outcomes import Failure
from hubbub.audit.scores import CategoryScore, LearnedScore, NumberScore, Score
from hubbub.audit.subjects import Subject, draw_both
from hubbub.errors import InvalidInput

__all__ = ["WITNESS_KIND", "make_witness_file", "read_witness_file", "replay"]

WITNESS_KIND = "audit-witness/3"
_MAX_FILE = 2**26


def make_witness_file(result: Audit, subject: dict[str, Any]) -> str:
    """Return the witness as JSON.

    Args:
        result: an audit with a witness.
        subject: how to reach the subject again, as the command line was given it.
    """
    assert result.witness is not None
    witness = result.witness
    stored = {
        "kind": WITNESS_KIND,
        "subject": subject,
        "claim": {
            "kind": result.claim.kind,
            "symbol": result.symbol,
            "value": result.claimed,
            "fixed": result.claim.fixed,
            "at": result.at,
        },
        "x": plain(witness.inputs.x),
        "x_prime": plain(witness.inputs.x_prime),
        "pair": witness.inputs.name,
        "event": witness.event,
        "score": _encode_score(witness.scored_by),
        "threshold": witness.threshold,
        "above": witness.above,
        "frequencies": {
            "probability_x": witness.probability_x,
            "probability_x_prime": witness.probability_x_prime,
            "draws": witness.draws,
        },
    }
    return json.dumps(stored, ensure_ascii=False, indent=1) + "\n"


def read_witness_file(path: str | Path) -> dict[str, Any]:
    """Read a witness file, with its inputs and its score as objects."""
    try:
        with Path(path).open("rb") as file:
            stored = json.loads(file.read(_MAX_FILE))
        {WITNESS_KIND: True}[stored["kind"]]
        stored["inputs"] = InputPair(_restore(stored["x"]), _restore(stored["x_prime"]), stored["pair"])
        stored["score"] = _decode_score(stored["score"])
        stored["threshold"], stored["above"] = float(stored["threshold"]), bool(stored["above"])
        stored["event"], stored["subject"] = str(stored["event"]), dict(stored["subject"])
        stored["claim"] = _decode_claim(stored["claim"])
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        SyntaxError,
        RecursionError,
        MemoryError,
    ):
        raise _cannot_read() from None
    known: dict[str, Any] = stored
    return known


def _cannot_read() -> InvalidInput:
    return InvalidInput(
        "the witness file cannot be read",
        why="it holds the inputs and the event to look for",
        fix="pass a file that `hubbub audit --witness` wrote",
    )


def replay(subject: Subject, stored: dict[str, Any], draws: int) -> Witness:
    """Draw afresh on the stored inputs, and count the stored event."""
    inputs, score = stored["inputs"], stored["score"]
    both = draw_both(subject, inputs.x, inputs.x_prime, draws)
    try:
        x, y = (score(outcomes) for outcomes in both)
    except (ValueError, TypeError, IndexError, OverflowError):
        raise _cannot_read() from None
    draws = min(x.size, y.size)
    x, y = x[:draws], y[:draws]
    threshold, above = stored["threshold"], stored["above"]
    in_x, in_y = ((scores > threshold) if above else (scores <= threshold) for scores in (x, y))
    return Witness(
        inputs,
        stored["event"],
        float(np.mean(in_x)),
        float(np.mean(in_y)),
        draws,
        score.name,
        threshold,
        above,
        score,
        (),
    )


def _decode_claim(stored: dict[str, Any]) -> Claim | None:
    """Return the claim; None for one that cannot be stored, such as a whole curve."""
    if not stored["kind"]:
        return None
    claim = Claim.restore(str(stored["kind"]), float(stored["value"]), float(stored["fixed"]))
    if claim is None:
        raise ValueError
    return claim


def _encode_score(score: Score) -> dict[str, Any]:
    if isinstance(score, NumberScore):
        return {"number": score.column, "paths": list(score.paths)}
    if isinstance(score, CategoryScore):
        return {
            "categories": score.column,
            "odds": [[_encode_key(key), odds] for key, odds in score.odds.items()],
            "paths": list(score.paths),
        }
    assert isinstance(score, LearnedScore)
    return {
        "learned": list(score.columns),
        "categories": [_encode_score(each) for each in score.categories],
        "center": score.center.tolist(),
        "scale": score.scale.tolist(),
        "weights": score.weights.tolist(),
        "paths": list(score.paths),
    }


def _decode_score(stored: dict[str, Any]) -> Score:
    if "number" in stored:
        return NumberScore(str(stored["number"]), _decode_paths(stored))
    if "learned" in stored:
        center, scale, weights = (
            np.array(stored[name], dtype=np.float64) for name in ("center", "scale", "weights")
        )
        categories = tuple(_decode_categories(each) for each in stored["categories"])
        columns = tuple(str(name) for name in stored["learned"])
        return LearnedScore(columns, categories, center, scale, weights, _decode_paths(stored))
    return _decode_categories(stored)


def _decode_categories(stored: dict[str, Any]) -> CategoryScore:
    return CategoryScore(
        str(stored["categories"]),
        {_decode_key(key): float(odds) for key, odds in stored["odds"]},
        _decode_paths(stored),
    )


def _decode_paths(stored: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(path) for path in stored["paths"])


def _encode_key(key: Any) -> Any:
    return {"error": key.kind} if isinstance(key, Failure) else repr(key)


def _decode_key(stored: Any) -> Any:
    if isinstance(stored, dict):
        return Failure(str(stored["error"]))
    if stored in {"nan", "inf", "-inf"}:
        return float(stored)
    return ast.literal_eval(stored)


def _restore(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"float"}:
        return float(value["float"])
    return [_restore(each) for each in value] if isinstance(value, list) else value
