"""Large sets are not safe: two exact counts over thousands, less one another, are one person's secret."""

import math

import duckdb

import hubbub
from hubbub.noise import uniform

PEOPLE, TARGETS, EPSILON = 3000, 100, 0.05
connection = duckdb.connect()
sick = [uniform(2) for _ in range(PEOPLE)]
connection.execute("CREATE TABLE patients (patient INT, sick BOOLEAN)")
connection.executemany("INSERT INTO patients VALUES (?, ?)", list(enumerate(map(bool, sick))))


def exact(condition: str) -> int:
    """An interface that answers exactly, and refuses every set of fewer than a thousand people."""
    query = "SELECT COUNT(*), COUNT(*) FILTER (WHERE sick) FROM patients WHERE " + condition
    size, answer = connection.execute(query).fetchone() or (0, 0)
    if size < 1000:
        raise PermissionError("the set is too small")
    return int(answer)


targets = range(TARGETS)
everybody = exact("true")
guesses = [everybody - exact(f"patient <> {target}") for target in targets]
right = sum(guess == sick[target] for guess, target in zip(guesses, targets, strict=True))
print(f"Exact counts of {PEOPLE - 1} people and more: {right} of {TARGETS} secrets found by subtracting")
assert right == TARGETS

# The same two questions to hubbub, for each target; each pair of answers has ε = 0.1 together.
data = hubbub.open(connection, table="patients", unit="patient", rows_per_unit=1)
print("The same questions to hubbub, with noise for a budget that says how much they tell together:")
right = 0
for target in targets:
    one, other = (
        data.sql("SELECT COUNT(*) AS n FROM patients WHERE sick" + more, epsilon=EPSILON).run().value["n"][0]
        for more in ("", f" AND patient <> {target}")
    )
    right += (one - other > 0.5) == bool(sick[target])
print(f"Noisy counts, ε = {EPSILON} each: {right} of {TARGETS} guessed")

# However clever, a guess from answers of ε in all is right with e^ε/(1 + e^ε) at most; the rest is luck.
best = 1 / (1 + math.exp(-2 * EPSILON))
luck = math.sqrt(math.log(1e9) / (2 * TARGETS))
print(f"No method gets more than {best:.1%} in the long run, or {best + luck:.1%} once in a billion runs")
assert right / TARGETS < best + luck
print(
    "And each question was charged: ε =",
    data.account.spent().epsilon,
    "in all, which a budget would have refused",
)
