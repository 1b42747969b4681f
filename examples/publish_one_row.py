"""Why δ must be far below 1/n: a "mechanism" that publishes somebody's whole record is (0, 1/n)-private."""

from fractions import Fraction

from hubbub import Budget, Gaussian, Neighbours, Refused
from hubbub.noise import uniform
from hubbub.textbook import Database, Universe

PATIENTS = ["Ana, HIV", "Bo, flu", "Cy, flu", "Dee, asthma"]
n = len(PATIENTS)

print("Publish one row at random:", PATIENTS[uniform(n)])

# Is that differentially private? Over all databases of n rows in which one patient may have been another:
universe = Universe([*PATIENTS, "Ana, flu"], max_rows=n)


def law(x: Database) -> list[Fraction]:
    """The chance of each record to be the one that is published."""
    return [Fraction(count, n) for count in x]


def delta(x: Database, y: Database, e_epsilon: int) -> Fraction:
    """By how much the best event for an attacker exceeds e^ε times its chance on the other database."""
    exceeds = (max(Fraction(0), p - e_epsilon * r) for p, r in zip(law(x), law(y), strict=True))
    return sum(exceeds, Fraction(0))


pairs = [(x, y) for x, y in universe.pairs(Neighbours.SUBSTITUTE) if sum(x) == n]
for e_epsilon in (1, 10, 10**9):
    worst = max(delta(x, y, e_epsilon) for x, y in pairs)
    print(f"e^ε = {e_epsilon}: δ = {worst}, the worst of {len(pairs)} pairs of neighbours")
print(f"So it satisfies (0, 1/{n})-differential privacy, to the letter, and publishes a whole record.")

# That is what a δ of 1/n allows. Where the population is declared, hubbub refuses it:
for attempt in (
    lambda: Budget(1, Fraction(1, n), population=n),
    lambda: Gaussian.of(sensitivity=1, epsilon=1, delta=Fraction(1, n), population=n),
):
    try:
        attempt()
    except Refused as refused:
        print("Refused:", refused)

print("Allowed:", Gaussian.of(sensitivity=1, epsilon=1, delta=Fraction(1, 100 * n), population=n))
