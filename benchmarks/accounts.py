"""The budget that charges need, chosen one after the other, over what their tight composition needs."""

import sys
import time
from collections.abc import Sequence
from fractions import Fraction

from measure import Target, show, show_targets

from hubbub.accounting import Budget, PrivacyFilter, PrivacyLoss

RUNS = [
    # noise multiplier, sampling rate, steps, δ
    ("0.5", "0.1", 100, "1e-5"),
    ("0.3", "0.001", 1000, "1e-5"),
    ("2.12", "0.001", 100, "1.1e-8"),
    ("0.4", "0.01", 200, "1e-5"),
    ("0.8", "0.001", 100, "1e-7"),
    ("4", "1e-4", 10_000, "1e-9"),
    ("1.1", "0.01", 1000, "1e-5"),
    ("1.1", "256/60000", 14_063, "1e-5"),
]
_STEPS = [
    Fraction(thousandths, 1000) for thousandths in (0, 1, 2, 5, 8, 12, 16, 20, 25, 30, 40, 50, 75, 100, 200)
]
_MILLIONTH = Fraction(1_000_001, 10**6)


def run(count: int = len(RUNS)) -> None:
    rows: list[tuple[str, ...]] = []
    worst = dict.fromkeys(("first", "later", "mix", "mix later", "undeclared", "twice"), Fraction(0))
    for noise, rate, steps, delta in RUNS[:count]:
        loss = PrivacyLoss.gaussian(1 / Fraction(noise)).poisson_subsampled(Fraction(rate)) * steps
        d = Fraction(delta)
        small = Fraction(loss.epsilon(d)) / 100
        queries = [PrivacyLoss.gaussian(small)] * 20 + [PrivacyLoss.laplace(small)] * 5
        tiny = PrivacyLoss.pure(Fraction(1, 10**6))
        start = time.process_time()
        results = {
            "first": needed([loss], d),
            "later": needed([tiny, loss], d, "training"),
            "mix": needed([loss, *queries], d),
            "mix later": needed([*queries, loss], d, "training"),
            "undeclared": needed([tiny, loss], d),
            "twice": needed([loss, loss], d),
        }
        took = time.process_time() - start
        worst = {name: max(worst[name], results[name]) for name in worst}
        figures = [f"{float(results[name]):.3f}" for name in worst]
        rows.append((f"σ = {noise}, q = {rate}, T = {steps}, δ = {delta}", *figures, f"{took:.0f} s"))
        print(rows[-1], file=sys.stderr, flush=True)
    show(
        "Budget needed over tight composition",
        (
            "",
            "run first",
            "run later",
            "run, 25 queries",
            "25 queries, run",
            "later, no purpose",
            "two runs",
            "CPU of all",
        ),
        rows,
    )
    gaussian = needed([PrivacyLoss.gaussian(Fraction(1, 10))] * 50, Fraction(1, 10**5))
    laplace = needed([PrivacyLoss.laplace(Fraction(1, 100))] * 100, Fraction(1, 10**6))
    account = PrivacyFilter(Budget(1, 1e-6))
    pure = account.count_more(PrivacyLoss.pure(0.01))
    tenths = account.count_more(PrivacyLoss.approximate(0.1, 1e-7))
    show_targets(
        [
            Target(
                "a first charge of (1, 1e-6) in (1, 1e-6)",
                "fits",
                "",
                account.allows(PrivacyLoss.approximate(1, 1e-6)),
            ),
            Target("charges of (0.1, 1e-7) in (1, 1e-6)", "10", str(tenths), tenths == 10),
            Target("pure charges of 0.01 in (1, 1e-6)", "≥ 551", str(pure), pure >= 551),
            _ratio("a run that comes first", worst["first"], "1.001"),
            _ratio("a run that comes later", worst["later"], "1.03"),
            _ratio("a run and 25 queries", worst["mix"], "1.05"),
            _ratio("25 queries and a run", worst["mix later"], "1.05"),
            _ratio("50 Gaussian queries", gaussian, "1.02"),
            _ratio("100 Laplace queries of 0.01", laplace, "1.04"),
        ]
    )


def needed(losses: Sequence[PrivacyLoss], delta: Fraction, purpose: str = "") -> Fraction:
    """The least ε of a budget in which all charges fit, over the ε of their composition; in steps."""
    tight = Fraction(PrivacyLoss.compose(losses).epsilon(delta)) * _MILLIONTH
    low, high = 0, len(_STEPS) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle)
            if _fit(
                losses, Budget(tight * (1 + _STEPS[middle]), delta, purpose=purpose, allow_large_epsilon=True)
            )
            else (middle + 1, high)
        )
    return 1 + _STEPS[low]


def _fit(losses: Sequence[PrivacyLoss], budget: Budget) -> bool:
    account = PrivacyFilter(budget)
    for loss in losses:
        if not account.allows(loss):
            return False
        account = account.charge(loss)
    return True


def _ratio(what: str, result: Fraction, most: str) -> Target:
    return Target(f"{what}: budget over tight", f"≤ {most}", f"{float(result):.3f}", result <= Fraction(most))


if __name__ == "__main__":
    run(*map(int, sys.argv[1:]))
