"""A refusal tells, too: an auditor that withholds dangerous answers says by its silence what they were."""

import math

import duckdb

import hubbub
from hubbub.errors import BudgetExceeded
from hubbub.noise import uniform

PEOPLE, EPSILON = 101, 0.01
sick = [uniform(2) for _ in range(PEOPLE)]
pairs = [(i, i + 1) for i in range(PEOPLE - 1)]


def audited(first: int, second: int) -> int | None:
    """An exact count of two people; None where it would tell who of them is sick."""
    answer = sick[first] + sick[second]
    return None if answer in {0, 2} else answer


# 0 or 2 would be dangerous, so it is refused; but then the two are alike, and each refusal says so.
alike = [audited(*pair) is None for pair in pairs]
right = sum(guess == (sick[a] == sick[b]) for guess, (a, b) in zip(alike, pairs, strict=True))
print(f"The auditor refused {sum(alike)} of {len(pairs)} questions, and never told a secret.")
print(f"Its refusals tell of {right} pairs whether they are alike: with one person known, everybody is.")
assert right == len(pairs)

# hubbub refuses by what is asked, and never by what is in the rows.
connection = duckdb.connect()
connection.execute("CREATE TABLE patients (patient INT, sick BOOLEAN)")
connection.executemany("INSERT INTO patients VALUES (?, ?)", list(enumerate(map(bool, sick))))
data = hubbub.open(connection, table="patients", unit="patient", rows_per_unit=1, budget=hubbub.Budget(1))
guesses = []
for a, b in pairs:
    plan = data.sql(
        f"SELECT COUNT(*) AS n FROM patients WHERE sick AND patient IN ({a}, {b})", epsilon=EPSILON
    )
    guesses.append(abs(plan.run().value["n"][0] - 1) > 0.5)
right = sum(guess == (sick[a] == sick[b]) for guess, (a, b) in zip(guesses, pairs, strict=True))
print(f"hubbub answers every one of them with noise, ε = {EPSILON} each: {right} of {len(pairs)} guessed")

best = 1 / (1 + math.exp(-2 * EPSILON))  # a guess about one person, from the two answers that she is in
luck = math.sqrt(math.log(1e9) / (2 * len(pairs)))
print(f"No method gets more than {best:.1%} in the long run, or {best + luck:.1%} once in a billion runs")
assert right / len(pairs) < best + luck
try:
    data.sql("SELECT COUNT(*) FROM patients WHERE sick", epsilon=EPSILON).run()
    raise SystemExit("it was not refused")
except BudgetExceeded as refused:
    print("Then the budget is spent, after as many questions as on any other data:", refused.what)
