"""Whatever is shown is a function of what mechanisms released: nothing else of the rows is in it.

Each mechanism is replaced by one that ignores its value and releases the same for all tables. Then plans,
answers, labels, refusals and receipts have to be the same for two tables that have nothing in common but
columns and group keys. A text, an estimate or a shape that depends on rows in another way differs.
"""

import json
from dataclasses import replace
from itertools import count

import numpy as np
import pandas as pd
import pytest

import hubbub as hb
from hubbub.mechanisms import Laplace, StabilityHistogram, TopK
from hubbub.mechanisms.laplace_gaussian import AdditiveMechanism
from hubbub.mechanisms.partition_selection import TruncatedGeometricSelection
from hubbub.mechanisms.vector_stability_histogram import VectorStabilityHistogram
from hubbub.sensitivity import Bounded
from hubbub.sql import explain
from hubbub.sql.quantile_selection import QuantileSelection


class Fixed:
    """Replaces mechanisms; the n-th release of a run is the same for all tables."""

    def __init__(self, monkeypatch, *, shows_keys=True):
        self.number, self.shows_keys = count(), shows_keys
        plain = {
            kind: kind.release
            for kind in (
                AdditiveMechanism,
                StabilityHistogram,
                VectorStabilityHistogram,
                TruncatedGeometricSelection,
            )
        }
        for kind, make in (
            (AdditiveMechanism, self.noisy),
            (StabilityHistogram, lambda mechanism, size: self.keys(size, [mechanism.threshold + 17])),
            (
                VectorStabilityHistogram,
                lambda mechanism, size: self.keys(
                    size // mechanism.parts, [mechanism.threshold // mechanism.parts + 9] * mechanism.parts
                ),
            ),
            (TruncatedGeometricSelection, lambda _, size: np.arange(size if self.shows_keys else 0)),
        ):

            def release(mechanism, value, make=make, plain=plain[kind]):
                nothing = Bounded(
                    np.zeros(value.coordinates, np.int64), value.sensitivity, value.unit, value.derivation
                )
                return replace(plain(mechanism, nothing), value=make(mechanism, value.coordinates))

            monkeypatch.setattr(kind, "release", release)
        gradually, select, top = Laplace.release_gradually, QuantileSelection.select, TopK.release

        def release_gradually(noise, value, levels):
            for each in gradually(noise, value, levels):
                yield replace(each, value=self.noisy(noise, value.coordinates))

        def select_fixed(selection, counts):
            shape = select(selection, counts).shape
            positions = self.random().integers(0, selection.grid.cells * selection.grid.parts, shape)
            return np.sort(positions, axis=1)

        monkeypatch.setattr(Laplace, "release_gradually", release_gradually)
        monkeypatch.setattr(QuantileSelection, "select", select_fixed)
        monkeypatch.setattr(TopK, "release", lambda k, value: replace(top(k, value), value=list(range(k.k))))

    def random(self):
        return np.random.default_rng(next(self.number))

    def noisy(self, mechanism, size):
        """Some coordinates that stand out, and many that do not."""
        random, places = self.random(), np.arange(size)
        out = random.laplace(0, 1, size) + 60 * random.random(size) * np.exp(-places / 8)
        return np.round(float(mechanism.scale) * out).astype(np.int64)

    def keys(self, size, parts):
        rows = [[place, *parts] for place in range(size if self.shows_keys else 0)]
        return np.array(rows, dtype=np.int64).reshape(-1, 1 + len(parts))


def table(seed, rows, *, units, missing, scale, heavy):
    random = np.random.default_rng(seed)
    x = random.gamma(2, scale, rows)
    x[random.random(rows) < missing] = np.nan
    unit = np.where(random.random(rows) < heavy, 0, random.integers(0, units, rows))
    keys = np.concatenate([list("abcd"), random.choice(list("abcd"), rows - 4)])
    return pd.DataFrame({"u": unit, "g": keys, "x": x, "y": random.normal(0, scale, rows)})


TABLES = [
    table(1, 2000, units=700, missing=0.02, scale=5, heavy=0),
    table(2, 150, units=9, missing=0.5, scale=900, heavy=0.6),
]
QUESTIONS = [
    "SELECT COUNT(*) AS n, COUNT(x) AS c, COUNT(DISTINCT u) AS p FROM t",
    "SELECT SUM(x) AS s, AVG(x) AS m, STDDEV(x) AS d FROM t WHERE y > 1",
    "SELECT MEDIAN(x) AS m, MIN(x) AS a, MAX(x) AS z FROM t",
    "SELECT g, COUNT(*) AS n, MEDIAN(x) AS m FROM t GROUP BY g",
    "SELECT g, AVG(x) AS m FROM t GROUP BY g",
    "SELECT g, CORR(x, y) AS c, COUNT(DISTINCT x) AS n FROM t GROUP BY g",
    "SELECT g, COUNT(DISTINCT u) AS n FROM t GROUP BY g HAVING COUNT(DISTINCT u) > 9 ORDER BY n LIMIT 2",
    "SELECT g, COUNT(*) AS n, AVG(x) AS m FROM t GROUP BY ROLLUP (g)",
    "SELECT g FROM t GROUP BY g ORDER BY COUNT(*) DESC LIMIT 2",
    "SELECT g, SUM(x) / COUNT(*) AS r, CASE WHEN COUNT(*) > 10 THEN AVG(x) END AS w FROM t GROUP BY g",
]
OPTIONS = {
    "all found": {"bounds": {"x": "auto", "y": (0, 9)}},
    "declared": {"rows_per_unit": 2},
    "measured before": {"measured": True},
    "declared, measured before": {"rows_per_unit": 2, "groups_per_unit": 1, "measured": True},
    "bounding report": {"rows_per_unit": 2, "groups_per_unit": 2, "bounding_report": True},
    "without intervals": {"intervals": False},
}


def all_displays(frame, fixed, text, keys, *, measured=False, **options):
    """All that an analyst sees, in the order in which she sees it."""
    fixed.number, out = count(), []
    options = {"bounds": {"x": (0, 100), "y": (0, 50)}, "epsilon": 1, "delta": 1e-6, **options}
    with hb.open(frame, table="t", unit="u", keys=keys, budget=hb.Budget(9, 1e-3)) as data:
        try:
            if measured:
                out.append(str(data.limits(epsilon=0.1, by=["g"], keys=keys).value))
            plan = data.sql(text, **options)
            out += [str(plan), plan.explain(), json.dumps(plan.label())]
            answers = plan.run().value
            out += [str(answers), answers.to_json(), answers._repr_html_(), json.dumps(answers.facts)]
            out.append(str(data.sql(text, **options)))  # with what is known by now
        except hb.HubbubError as error:
            out.append(str(error))
        return [*out, *map(str, data.account.receipts)]


@pytest.mark.sweep(8)
@pytest.mark.parametrize("shows_keys", [True, False])
@pytest.mark.parametrize("keys", ["declared", "private"])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("text", QUESTIONS)
def test_displays_depend_on_releases_only(text, options, keys, shows_keys, monkeypatch):
    fixed = Fixed(monkeypatch, shows_keys=shows_keys)
    known = {"g": list("abcde")} if keys == "declared" else None
    one, two = (all_displays(frame, fixed, text, known, **OPTIONS[options]) for frame in TABLES)
    assert one == two
    assert not any("the run failed" in each for each in one)


def test_a_note_that_counts_rows_is_caught(monkeypatch):
    fixed, sizes = Fixed(monkeypatch), iter(map(len, TABLES))
    plain = explain.make_label

    def leaking(plan, *more):
        return {**plain(plan, *more), "note": f"of {leaking.rows} rows"}

    monkeypatch.setattr("hubbub.sql.executor.make_label", leaking)
    seen = []
    for frame in TABLES:
        leaking.rows = next(sizes)
        seen.append(all_displays(frame, fixed, QUESTIONS[0], None, rows_per_unit=1))
    assert seen[0] != seen[1]
