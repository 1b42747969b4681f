"""A picture of the two laws that an audit told apart."""

from hubbub.audit.finding import Audit
from hubbub.errors import InvalidInput
from hubbub.report.charts import Axis, Frame

__all__ = ["draw_laws"]


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
