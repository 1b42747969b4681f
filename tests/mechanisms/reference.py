"""Independent reference laws: exact sums over all integers, for Fractions and for mpmath numbers alike.

With z = e^−rate rational, every probability below is a Fraction: ratios are computed, not estimated.
"""

import copy
import hashlib
import pickle
from collections import Counter
from itertools import permutations

import mpmath

from hubbub.mechanisms import from_json
from internals import inject_bits


class Shape:
    """A function of an integer k: exact anywhere, and beyond ±edge a sum of c·z^(a·|k|) on either side."""

    def __init__(self, z, at, left, right, edge):
        self.z, self.at, self.left, self.right, self.edge = z, at, left, right, edge

    def __mul__(self, other):
        return Shape(
            self.z,
            lambda k: self.at(k) * other.at(k),
            _product(self.left, other.left),
            _product(self.right, other.right),
            max(self.edge, other.edge),
        )

    def total(self):
        """The sum over all integers, in closed form."""
        middle = sum(self.at(k) for k in range(-self.edge + 1, self.edge))
        sides = [*self.left.items(), *self.right.items()]
        return middle + sum(c * self.z ** (a * self.edge) / (1 - self.z**a) for a, c in sides)


def _product(one, two):
    result = Counter()
    for a, c in one.items():
        for b, d in two.items():
            result[a + b] += c * d
    return result


def chance(z, m, k):
    """Pr[X = k] of a discrete Laplace variable with q = z^m."""
    q = z**m
    return (1 - q) / (1 + q) * q ** abs(k)


def at_most(z, m, k):
    """Pr[X ≤ k]."""
    q = z**m
    return 1 - q ** (k + 1) / (1 + q) if k >= 0 else q**-k / (1 + q)


def mass(z, m=1):
    c = chance(z, m, 0)
    return Shape(z, lambda k: chance(z, m, k), {m: c}, {m: c}, 1)


def up_to(z, m, shift):
    """Pr[X ≤ k + shift], as a function of k."""
    q = z**m
    right = {0: 1, m: -(q ** (shift + 1)) / (1 + q)}
    left = {m: q**-shift / (1 + q)}
    return Shape(z, lambda k: at_most(z, m, k + shift), left, right, abs(shift) + 2)


def above(z, m, shift):
    """Pr[X > k + shift], as a function of k."""
    below = up_to(z, m, shift)
    return Shape(
        z,
        lambda k: 1 - below.at(k),
        {0: 1, **{a: -c for a, c in below.left.items()}},
        {a: -c for a, c in below.right.items() if a},
        below.edge,
    )


def lead_at_least(scores, z, winner, least, order):
    """Pr[`winner` wins, and would with a noisy score lower by `least`], ties going by `order`."""
    shape = mass(z)
    for other, score in enumerate(scores):
        if other != winner:
            shape *= up_to(z, 1, scores[winner] - score - least - (order[other] > order[winner]))
    return shape.total()


def noisy_max(scores, z, least=0):
    """For each candidate, Pr[it wins with a lead of `least` or more], over all orders of ties."""
    orders = list(permutations(range(len(scores))))
    return [
        sum(lead_at_least(scores, z, winner, least, order) for order in orders) / len(orders)
        for winner in range(len(scores))
    ]


def permute_and_flip(scores, z):
    """Going through all orders: the first head in each."""
    best = max(scores)
    orders = list(permutations(range(len(scores))))
    law = [0 * z] * len(scores)
    for order in orders:
        missed = 1
        for candidate in order:
            heads = z ** (best - scores[candidate])
            law[candidate] += missed * heads / len(orders)
            missed *= 1 - heads
    return law


def exponential(scores, z):
    best = max(scores)
    weights = [z ** (best - score) for score in scores]
    return [weight / sum(weights) for weight in weights]


def above_threshold(values, threshold, z, m_threshold, m_query):
    """Pr[the first answer "above" is at i] for each i, and at last Pr[none is]."""
    law = []
    shape = mass(z, m_threshold)
    for value in values:
        # Above: value + noise ≥ threshold + k.
        law.append((shape * above(z, m_query, threshold - value - 1)).total())
        shape *= up_to(z, m_query, threshold - value - 1)
    return [*law, shape.total()]


def worst_ratio(one, two):
    """The largest Pr[outcome | one]/Pr[outcome | two]."""
    return max(p / q for p, q in zip(one, two, strict=True))


def stream(seed):
    """Bytes that look random and are the same in every run."""
    state = {"count": 0}

    def source(count):
        state["count"] += 1
        return hashlib.shake_256(f"{seed}/{state['count']}".encode()).digest(count)

    return source


def repeatable_bits(seed):
    """The same random bits in every run, within this context."""
    return inject_bits(stream(seed))


def scripted(*chunks):
    """Just these bytes, in this order, each asked for as a whole; what is left can be looked at."""
    left = list(chunks)

    def source(count):
        chunk = left.pop(0)
        assert len(chunk) == count
        return chunk

    source.left = left
    return source


def fits(counts, law):
    """Whether counts fit a law: χ², refused at a chance below 1e-9."""
    total = sum(counts)
    seen = [(n, total * float(p)) for n, p in zip(counts, law, strict=True)]
    assert abs(sum(expected for _, expected in seen) - total) < 1e-6 * total
    statistic = sum((n - expected) ** 2 / expected for n, expected in seen)
    return mpmath.gammainc((len(seen) - 1) / 2, statistic / 2, regularized=True) > 1e-9


def check_stored(mechanism, kind):
    """A mechanism that chooses is read as it was written, and copied as it is."""
    text = mechanism.to_json()
    assert from_json(text) == mechanism
    assert f'"kind":"{kind}"' in text
    assert mechanism.error_kind == "regret"
    assert pickle.loads(pickle.dumps(mechanism)) == copy.deepcopy(mechanism) == mechanism  # noqa: S301
    assert hash(from_json(text)) == hash(mechanism)
