"""Laws of mechanisms in exact rationals, where e^−ε is rational: what the theorems are proved on.

A law is a mapping of outcomes to `Fraction`s that add up to 1. Where a support is infinite, outcomes
that have the same ratio of probabilities for all the databases compared are put into one class:
nothing about ratios, δ or privacy loss is lost, because these see a class only through its ratio.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import inf, prod

from hubbub.noise.enclosures import log

Law = Mapping[Hashable, Fraction]

HALF, TWO_THIRDS = Fraction(1, 2), Fraction(2, 3)
BITS = 200
CLOSE = Fraction(1, 1 << 180)


def epsilon_of(ratio: Fraction) -> Fraction:
    """ln(ratio), rounded up to a multiple of 2^−200: the rational ε that stands for it.

    >>> float(epsilon_of(Fraction(2)))
    0.6931471805599453
    """
    return Fraction(log(Fraction(ratio), BITS)[1], 1 << BITS)


# Laws


def is_law(law: Law) -> bool:
    return sum(law.values()) == 1 and min(law.values()) >= 0


def laplace(q: Fraction, centre: int, low: int, high: int) -> Law:
    """centre + X with Pr[X = k] = (1−q)/(1+q)·q^|k|; the outcomes `low` and `high` stand for whole tails.

    Between centres within [low, high] each tail has one ratio, so it is one class.

    >>> laplace(HALF, 0, -1, 1)
    {-1: Fraction(1, 3), 0: Fraction(1, 3), 1: Fraction(1, 3)}
    """
    assert low <= centre <= high
    assert low < high
    law = {k: (1 - q) / (1 + q) * q ** abs(k - centre) for k in range(low + 1, high)}
    return {low: q ** (centre - low) / (1 + q), **law, high: q ** (high - centre) / (1 + q)}


def independent(*laws: Law) -> Law:
    """Several outcomes at once, drawn independently."""
    return {
        outcomes: prod((law[outcome] for law, outcome in zip(laws, outcomes, strict=True)), start=Fraction(1))
        for outcomes in product(*laws)
    }


def then(first: Law, second: Callable[[Hashable], Law]) -> Law:
    """Both outcomes, where the law of the second is chosen by the first."""
    return {(a, b): chance * more for a, chance in first.items() for b, more in second(a).items()}


def mapped(law: Law, function: Callable[[Hashable], Hashable]) -> Law:
    """The law of a function of the outcome."""
    out: dict[Hashable, Fraction] = {}
    for outcome, chance in law.items():
        out[function(outcome)] = out.get(function(outcome), Fraction(0)) + chance
    return out


def blurred(law: Law, kernel: Callable[[Hashable], Law]) -> Law:
    """The law of a randomized function of the outcome."""
    return mapped(then(law, kernel), lambda both: both[1])


def grid_laws(outcomes: int, parts: int) -> list[tuple[Fraction, ...]]:
    """Every law on a number of outcomes with probabilities that are multiples of 1/parts.

    >>> len(grid_laws(3, 4))
    15
    """
    return [
        tuple(Fraction(part, parts) for part in cut)
        for cut in product(range(parts + 1), repeat=outcomes)
        if sum(cut) == parts
    ]


# What they promise


def worst_ratio(p: Law, r: Law) -> Fraction | float:
    """max Pr_p[S]/Pr_r[S] over all events S: attained by one outcome; infinite where r cannot do what p can.

    >>> worst_ratio({"yes": Fraction(3, 4), "no": Fraction(1, 4)}, {"yes": HALF, "no": HALF})
    Fraction(3, 2)
    """
    ratios = [inf if not r.get(o) else chance / r[o] for o, chance in p.items() if chance]
    return max(ratios)


def delta(p: Law, r: Law, e_epsilon: Fraction) -> Fraction:
    """max Pr_p[S] − e^ε·Pr_r[S] over all events S: attained by the outcomes of ratio above e^ε."""
    return sum((max(Fraction(0), chance - e_epsilon * r.get(o, 0)) for o, chance in p.items()), Fraction(0))


def chance_of_loss_above(p: Law, r: Law, e_epsilon: Fraction) -> Fraction:
    """Pr over p that the privacy loss ln(p/r) is above ε."""
    return sum((chance for o, chance in p.items() if chance > e_epsilon * r.get(o, 0)), Fraction(0))


def worst(laws: Callable[[Hashable], Law], pairs: Iterable[tuple[Hashable, Hashable]]) -> Fraction | float:
    """The worst ratio over pairs of databases, each law computed once."""
    known: dict[Hashable, Law] = {}
    largest: Fraction | float = Fraction(0)
    for pair in pairs:
        for x in pair:
            if x not in known:
                known[x] = laws(x)
        largest = max(largest, worst_ratio(known[pair[0]], known[pair[1]]))
    return largest


# Sums over all integers


@dataclass(frozen=True)
class Factor:
    """A function of an integer k that is Σ cᵢ·wⁱ·ᵏ far out on both sides, i ≥ 0 counted outward.

    It is Pr[centre + X = k], or with `is_tail` Pr[centre + X ≤ k], for X discrete Laplace of
    q = w^power; with `is_above` the complement Pr[centre + X > k].
    """

    w: Fraction
    centre: int
    power: int = 1
    is_tail: bool = False
    is_above: bool = False

    def at(self, k: int) -> Fraction:
        q = self.w**self.power
        if not self.is_tail:
            return (1 - q) / (1 + q) * q ** abs(k - self.centre)
        up_to = (
            q ** (self.centre - k) / (1 + q) if k <= self.centre else 1 - q ** (k + 1 - self.centre) / (1 + q)
        )
        return 1 - up_to if self.is_above else up_to

    def below(self) -> dict[int, Fraction]:
        """As a polynomial in z = w^−k, for k ≤ centre."""
        q = self.w**self.power
        if not self.is_tail:
            return {self.power: (1 - q) / (1 + q) * q**self.centre}
        up_to = q**self.centre / (1 + q)
        return {0: Fraction(1), self.power: -up_to} if self.is_above else {self.power: up_to}

    def above(self) -> dict[int, Fraction]:
        """As a polynomial in z = w^k, for k ≥ centre."""
        q = self.w**self.power
        if not self.is_tail:
            return {self.power: (1 - q) / (1 + q) * q**-self.centre}
        beyond = q ** (1 - self.centre) / (1 + q)
        return {self.power: beyond} if self.is_above else {0: Fraction(1), self.power: -beyond}


def equal(w: Fraction, centre: int, power: int = 1) -> Factor:
    """Pr[centre + X = k]."""
    return Factor(w, centre, power)


def at_most(w: Fraction, centre: int, power: int = 1) -> Factor:
    """Pr[centre + X ≤ k]."""
    return Factor(w, centre, power, is_tail=True)


def less(w: Fraction, centre: int, power: int = 1) -> Factor:
    """Pr[centre + X < k]."""
    return Factor(w, centre + 1, power, is_tail=True)


def at_least(w: Fraction, centre: int, power: int = 1) -> Factor:
    """Pr[centre + X ≥ k]."""
    return Factor(w, centre + 1, power, is_tail=True, is_above=True)


def sum_of_products(factors: Sequence[Factor]) -> Fraction:
    """Σ over all integers k of the product of the factors at k, exactly.

    >>> sum_of_products([equal(HALF, 0), at_most(HALF, 0)])  # Pr[Y ≤ X], a tie counted
    Fraction(16, 27)
    """
    (w,) = {factor.w for factor in factors}
    low, high = min(f.centre for f in factors), max(f.centre for f in factors)
    middle = sum((prod(f.at(k) for f in factors) for k in range(low + 1, high)), Fraction(0))
    if low == high:
        high += 1
    upper = _geometric_sum(w, high, [f.above() for f in factors])
    lower = _geometric_sum(w, -low, [f.below() for f in factors])
    return lower + middle + upper


def _geometric_sum(w: Fraction, start: int, polynomials: Sequence[Mapping[int, Fraction]]) -> Fraction:
    """Σ over k ≥ start of the product at z = w^k."""
    total = {0: Fraction(1)}
    for polynomial in polynomials:
        terms: dict[int, Fraction] = {}
        for (i, a), (j, b) in product(total.items(), polynomial.items()):
            terms[i + j] = terms.get(i + j, Fraction(0)) + a * b
        total = terms
    return sum((c * w ** (n * start) / (1 - w**n) for n, c in total.items() if c), Fraction(0))
